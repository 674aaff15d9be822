package syntax

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// operators, longest first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

// inside lexes a tag up to its end.
func (l *lexer) inside(end string, kind tokKind) {
	depth := 0
	for {
		l.skipSpace()
		rest := l.src[l.pos:]
		if rest == "" {
			value.Raise("line %d: tag without an end", l.line)
		}
		if depth == 0 {
			if sign, ok := closes(rest, end); ok {
				l.push(kind, "")
				l.pos += len(end)
				if sign != 0 {
					l.pos++
				}
				l.after(sign, kind == tokBlockEnd)
				return
			}
		}
		switch c := rest[0]; {
		case c == '"' || c == '\'':
			l.stringLiteral(c)
		case c >= '0' && c <= '9':
			l.number()
		case c == '_' || c >= utf8.RuneSelf || unicode.IsLetter(rune(c)):
			l.name()
		default:
			depth += l.operator()
		}
	}
}

func closes(s, end string) (sign byte, ok bool) {
	if strings.HasPrefix(s, end) {
		return 0, true
	}
	if (s[0] == '-' || s[0] == '+' && end == "%}") && strings.HasPrefix(s[1:], end) {
		return s[0], true
	}
	return 0, false
}

func (l *lexer) skipSpace() {
	for l.pos < len(l.src) && value.IsSpace(rune(l.src[l.pos])) {
		if l.src[l.pos] == '\n' {
			l.line++
		}
		l.pos++
	}
}

// operator lexes an operator and returns its change of bracket depth.
func (l *lexer) operator() int {
	for _, op := range operators {
		if strings.HasPrefix(l.src[l.pos:], op) {
			l.push(tokOp, op)
			l.pos += len(op)
			switch op {
			case "(", "[", "{":
				return 1
			case ")", "]", "}":
				return -1
			}
			return 0
		}
	}
	value.Raise("line %d: unexpected character %q", l.line, l.src[l.pos])
	return 0
}

func (l *lexer) name() {
	start := l.pos
	for l.pos < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[l.pos:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			break
		}
		l.pos += n
	}
	if l.pos == start {
		value.Raise("line %d: unexpected character %q", l.line, l.src[l.pos])
	}
	l.push(tokName, l.src[start:l.pos])
}

func (l *lexer) number() {
	start, kind := l.pos, tokInt
	digits := func() {
		for l.pos < len(l.src) && (isAlnum(l.src[l.pos]) && !strings.ContainsRune("eE", rune(l.src[l.pos])) || l.src[l.pos] == '_') {
			l.pos++
		}
	}
	hex := strings.HasPrefix(l.src[start:], "0x") || strings.HasPrefix(l.src[start:], "0X")
	for l.pos < len(l.src) && hex && (isAlnum(l.src[l.pos]) || l.src[l.pos] == '_') {
		l.pos++
	}
	digits()
	if !hex && l.pos+1 < len(l.src) && l.src[l.pos] == '.' && isDigit(l.src[l.pos+1]) {
		kind = tokFloat
		l.pos++
		digits()
	}
	if !hex && l.pos < len(l.src) && (l.src[l.pos]|0x20) == 'e' {
		i := l.pos + 1
		if i < len(l.src) && (l.src[i] == '+' || l.src[i] == '-') {
			i++
		}
		if i < len(l.src) && isDigit(l.src[i]) {
			kind, l.pos = tokFloat, i
			digits()
		}
	}
	l.push(kind, strings.ReplaceAll(l.src[start:l.pos], "_", ""))
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlnum(c byte) bool { return isDigit(c) || (c|0x20) >= 'a' && (c|0x20) <= 'z' }

// stringLiteral lexes a string and resolves Python's escapes.
func (l *lexer) stringLiteral(quote byte) {
	l.pos++
	var b strings.Builder
	for {
		i := strings.IndexAny(l.src[l.pos:], string(quote)+"\\")
		if i < 0 {
			value.Raise("line %d: string without an end", l.line)
		}
		part := l.src[l.pos : l.pos+i]
		b.WriteString(part)
		l.line += strings.Count(part, "\n")
		l.pos += i + 1
		if l.src[l.pos-1] == quote {
			break
		}
		l.escape(&b)
	}
	l.push(tokString, b.String())
}

var simpleEscapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': "",
}

// escape decodes an escape sequence after its backslash.
func (l *lexer) escape(b *strings.Builder) {
	if l.pos >= len(l.src) {
		value.Raise("line %d: string without an end", l.line)
	}
	c := l.src[l.pos]
	if s, ok := simpleEscapes[c]; ok {
		b.WriteString(s)
		l.pos++
		return
	}
	width, base := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c], 16
	start := l.pos + 1
	if width == 0 && c >= '0' && c <= '7' {
		base, start = 8, l.pos
		for width < 3 && start+width < len(l.src) && l.src[start+width] >= '0' && l.src[start+width] <= '7' {
			width++
		}
	}
	if width == 0 {
		b.WriteByte('\\') // Python keeps unknown escapes
		return
	}
	if start+width > len(l.src) {
		value.Raise("line %d: cut escape", l.line)
	}
	n, err := strconv.ParseUint(l.src[start:start+width], base, 32)
	if err != nil {
		value.Raise("line %d: bad escape \\%s", l.line, l.src[l.pos:start+width])
	}
	b.WriteRune(rune(n))
	l.pos = start + width
}
