package strict

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var syntaxLine = regexp.MustCompile(`line (\d+)(?:, column (\d+))?: ?`)

// syntax reports an error of the YAML parser. The parser reports the line on which the failing
// construct began, often one too early; the report has the line on which the text becomes invalid.
func (r *Report) syntax(err error, data []byte) {
	line, text := syntaxError(err)
	lines := bytes.Split(data, []byte("\n"))
	if found := lostAt(lines, line, text); found > 0 {
		column, hint := place(lines[found-1])
		r.add(found, column, text, hint)
		return
	}
	if open, ends := unclosed(data); len(open) > 0 && errors.Is(parses(append(bytes.Clone(data), ends...)), io.EOF) {
		before := data[:open[len(open)-1]]
		r.add(1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'), text, "what begins here is not closed")
		return
	}
	column := 0
	if line = min(line, len(lines)); line > 0 {
		column, _ = place(lines[line-1])
	}
	r.add(line, column, text, "")
}

// syntaxError returns the line and the text of a parser error; line 0: none.
func syntaxError(err error) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := syntaxLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = strings.TrimSpace(strings.Replace(text, m[0], "", 1))
	}
	return line, text
}

// Limits of the search. Beyond them the parser's line is kept.
const (
	maxLostLines = 400
	maxLostBytes = 16 << 20
)

// lostAt returns the first line, starting at 1, at which the text up to there fails like the whole
// text; 0 if none. from is the parser's line.
func lostAt(lines [][]byte, from int, text string) int {
	read := 0
	for n := max(from, 1); n <= len(lines) && n < from+maxLostLines && read < maxLostBytes; n++ {
		head := append(bytes.Join(lines[:n], []byte("\n")), '\n')
		_, ends := unclosed(head)
		head = append(head, ends...) // unfinished text alone is not an error
		read += len(head)
		if _, got := syntaxError(parses(head)); got == text {
			return n
		}
	}
	return 0
}

// unclosed returns the positions of braces and brackets that are open at the end of the text,
// outermost first, and their closing characters.
func unclosed(text []byte) (open []int, ends []byte) {
	before := byte('\n')
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '#' && bytes.IndexByte(space, before) >= 0:
			i += lengthTo(text[i:], '\n')
		case (c == '"' || c == '\'') && bytes.IndexByte(opening, before) >= 0:
			i += quoted(text[i:])
		case c == '{':
			open, ends = append(open, i), append(ends, '}')
		case c == '[':
			open, ends = append(open, i), append(ends, ']')
		case (c == '}' || c == ']') && len(open) > 0:
			open, ends = open[:len(open)-1], ends[:len(ends)-1]
		}
		before = text[min(i, len(text)-1)]
	}
	slices.Reverse(ends)
	return open, ends
}

// Characters that may precede a comment, and a quoted string: elsewhere # and quotes are part of a
// plain string.
var (
	space   = []byte(" \t\r\n")
	opening = append([]byte("{[,:"), space...)
)

// quoted returns the end of the quoted string that text starts with. Two single quotes stand for
// one.
func quoted(text []byte) int {
	double := text[0] == '"'
	i := 1
	for ; i < len(text); i++ {
		switch {
		case double && text[i] == '\\', !double && bytes.HasPrefix(text[i:], []byte("''")):
			i++
		case text[i] == text[0]:
			return i
		}
	}
	return i
}

// lengthTo returns the number of bytes before the first c, or all if there is none.
func lengthTo(text []byte, c byte) int {
	if n := bytes.IndexByte(text, c); n >= 0 {
		return n
	}
	return len(text)
}

// parses returns why the text is invalid YAML. For valid text it returns a special error that
// equals no other.
func parses(text []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(untab(text)))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return io.EOF
		} else if err != nil {
			return err
		}
	}
}

// place returns the column of a line's first character, and a hint if it is indented with a tab,
// which YAML forbids.
func place(line []byte) (column int, hint string) {
	indent := len(line) - len(bytes.TrimLeft(line, " \t"))
	if tab := bytes.IndexByte(line[:indent], '\t'); tab >= 0 {
		return tab + 1, "indent with spaces: a tab is not allowed here"
	}
	return min(indent, len(bytes.TrimRight(line, " \t\r"))) + 1, ""
}
