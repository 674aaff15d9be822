package syntax

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// tokKind is the kind of a token.
type tokKind uint8

const (
	tokEOF tokKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

// token is one token; text holds a string literal's value without escapes.
type token struct {
	kind tokKind
	text string
	line int
}

// lexer cuts a template into tokens. Blocks are trimmed and stripped as with
// trim_blocks and lstrip_blocks.
type lexer struct {
	src  string
	pos  int
	line int
	toks []token
	// bol is true if the last tag ended with its line, so that the following data starts a line.
	bol bool
}

// lex returns the tokens of a template, tokEOF last.
func lex(src string) []token {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{src: src, line: 1, bol: true}
	for l.pos < len(l.src) {
		l.root()
	}
	return append(l.toks, token{kind: tokEOF, line: l.line})
}

// root lexes data up to the next tag, and the tag.
func (l *lexer) root() {
	rest := l.src[l.pos:]
	at := tagStart(rest)
	if at < 0 {
		l.data(rest)
		l.pos = len(l.src)
		return
	}
	data, open := rest[:at], rest[at:at+2]
	sign := byte(0)
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	l.data(l.stripBefore(data, open, sign))
	l.line += strings.Count(data, "\n")
	l.pos += at + 2
	if sign != 0 {
		l.pos++
	}
	switch open {
	case "{#":
		l.comment()
	case "{{":
		l.push(tokVarBegin, "")
		l.inside("}}", tokVarEnd)
	default:
		if l.raw() {
			return
		}
		l.push(tokBlockBegin, "")
		l.inside("%}", tokBlockEnd)
	}
}

// tagStart returns the position of the next "{{", "{%" or "{#", or -1.
func tagStart(s string) int {
	for i := 0; ; {
		k := strings.IndexByte(s[i:], '{')
		if k < 0 || i+k+1 >= len(s) {
			return -1
		}
		i += k
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
		i++
	}
}

// stripBefore removes white space before a tag. "-" removes all white space. For a block or comment
// preceded only by white space on its line, it removes that line's white space.
func (l *lexer) stripBefore(data, open string, sign byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(data, value.IsSpace)
	}
	if sign == '+' || open == "{{" {
		return data
	}
	at := strings.LastIndexByte(data, '\n') + 1
	if (at > 0 || l.bol) && strings.TrimFunc(data[at:], value.IsSpace) == "" {
		return data[:at]
	}
	return data
}

func (l *lexer) push(k tokKind, text string) { l.toks = append(l.toks, token{k, text, l.line}) }

func (l *lexer) data(s string) {
	if s != "" {
		l.push(tokData, s)
	}
}

// after handles the end of a tag at l.pos: "-" removes white space, and a block's line end is
// removed unless "+" keeps it.
func (l *lexer) after(sign byte, block bool) {
	start := l.pos
	switch {
	case sign == '-':
		rest := l.src[l.pos:]
		l.pos += len(rest) - len(strings.TrimLeftFunc(rest, value.IsSpace))
	case sign != '+' && block && l.pos < len(l.src) && l.src[l.pos] == '\n':
		l.pos++
	}
	l.bol = l.pos > start && l.src[l.pos-1] == '\n'
	l.line += strings.Count(l.src[start:l.pos], "\n")
}

func (l *lexer) comment() {
	end := strings.Index(l.src[l.pos:], "#}")
	if end < 0 {
		value.Raise("line %d: comment without an end", l.line)
	}
	body := l.src[l.pos : l.pos+end]
	l.line += strings.Count(body, "\n")
	l.pos += end + 2
	l.after(endSign(body), true)
}

func endSign(body string) byte {
	if n := len(body); n > 0 && (body[n-1] == '-' || body[n-1] == '+') {
		return body[n-1]
	}
	return 0
}

// raw handles {% raw %}; l.pos is after the block's start.
func (l *lexer) raw() bool {
	tag, ok := l.simpleTag(l.src[l.pos:], "raw")
	if !ok {
		return false
	}
	l.pos += len(tag)
	l.after(endSign(strings.TrimSuffix(tag, "%}")), false)
	for i := l.pos; ; {
		k := strings.Index(l.src[i:], "{%")
		if k < 0 {
			value.Raise("line %d: raw block without an end", l.line)
		}
		i += k
		rest, sign := l.src[i+2:], byte(0)
		if rest != "" && (rest[0] == '-' || rest[0] == '+') {
			sign, rest = rest[0], rest[1:]
		}
		tag, ok := l.simpleTag(rest, "endraw")
		if !ok {
			i += 2
			continue
		}
		data := l.src[l.pos:i]
		l.data(l.stripBefore(data, "{%", sign))
		l.line += strings.Count(data, "\n")
		l.pos = len(l.src) - len(rest) + len(tag)
		l.after(endSign(strings.TrimSuffix(tag, "%}")), true)
		return true
	}
}

// simpleTag returns the part of s up to and with "%}" when it is a tag of one
// word.
func (l *lexer) simpleTag(s, word string) (string, bool) {
	end := strings.Index(s, "%}")
	if end < 0 {
		return "", false
	}
	body := strings.TrimRight(s[:end], "-+")
	if strings.TrimFunc(body, value.IsSpace) != word {
		return "", false
	}
	return s[:end+2], true
}
