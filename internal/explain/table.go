package explain

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// tableWidth is the maximum width of tables.
const tableWidth = 110

// column is one column of a table. Its header may break after hyphens and spaces.
type column struct {
	head  string
	cells []string
	left  bool // aligned to the left
}

func (c *column) add(format string, a ...any) { c.cells = append(c.cells, fmt.Sprintf(format, a...)) }

// headWidth is the width at which a header breaks.
const headWidth = 14

// lines returns the header in lines of at most headWidth where possible.
func (c *column) lines() []string {
	var out []string
	line := ""
	for word := range wordsOf(c.head) {
		if line != "" && len(line)+len(word) > headWidth {
			out = append(out, strings.TrimRight(line, " "))
			line = ""
		}
		line += word
	}
	return append(out, strings.TrimRight(line, " "))
}

// wordsOf yields the parts of s, each with its trailing hyphen or space.
func wordsOf(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for s != "" {
			end := strings.IndexAny(s, " -") + 1
			if end == 0 {
				end = len(s)
			}
			if !yield(s[:end]) {
				return
			}
			s = s[end:]
		}
	}
}

func (c *column) width() int {
	w := 0
	for _, s := range c.lines() {
		w = max(w, utf8.RuneCountInString(s))
	}
	for _, s := range c.cells {
		w = max(w, utf8.RuneCountInString(s))
	}
	return w
}

// writeTable writes columns of equal length side by side. Columns that do not fit follow below,
// with the first column repeated.
func writeTable(w io.Writer, columns []column) error {
	const indent, gap = 2, 2
	first := columns[0].width()
	for rest := columns[1:]; ; {
		used, n := indent+first, 0
		for n < len(rest) && (n == 0 || used+gap+rest[n].width() <= tableWidth) {
			used += gap + rest[n].width()
			n++
		}
		block := append([]column{columns[0]}, rest[:n]...)
		if err := writeBlock(w, block); err != nil {
			return err
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
}

func writeBlock(w io.Writer, columns []column) error {
	heads, height := make([][]string, len(columns)), 0
	for i := range columns {
		heads[i] = columns[i].lines()
		height = max(height, len(heads[i]))
	}
	for line := range height {
		err := writeRow(w, columns, func(i int) string {
			if k := line - (height - len(heads[i])); k >= 0 {
				return heads[i][k]
			}
			return ""
		})
		if err != nil {
			return err
		}
	}
	for row := range columns[0].cells {
		if err := writeRow(w, columns, func(i int) string { return columns[i].cells[row] }); err != nil {
			return err
		}
	}
	return nil
}

func writeRow(w io.Writer, columns []column, cell func(int) string) error {
	var b strings.Builder
	for i := range columns {
		s := cell(i)
		space := strings.Repeat(" ", columns[i].width()-utf8.RuneCountInString(s))
		b.WriteString("  ")
		if columns[i].left {
			b.WriteString(s + space)
		} else {
			b.WriteString(space + s)
		}
	}
	_, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	return err
}

// wrapped writes text after a label, wrapped to the width of tables.
func wrapped(w io.Writer, label, text string) {
	const margin = 10
	line := fmt.Sprintf("%-*s", margin-1, label)
	for _, word := range strings.Fields(text) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > tableWidth && strings.TrimSpace(line) != "" {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", margin-1)
		}
		line += " " + word
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

// cut truncates s to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
