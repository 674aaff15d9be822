package guide

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is one shell block of a page.
type Block struct {
	Line   int
	Script string
	Until  string // output to wait for, of a block that runs in the background
	Skip   string // reason why it is not run
	On     string // environment that runs it, if it is not that of the page
	Output string // the text block after it; "": none
}

var fence = regexp.MustCompile("(?ms)^(?: *<!-- (not run|background until|on): (.*?) -->\n)?( *)```(\\w+)\n(.*?)^ *```$")

var control = regexp.MustCompile(`<!-- (?:not run|background until|on):`)

// Parse returns the shell blocks of a page. It returns an error for a control comment that is not
// directly before a shell block.
func Parse(page string) ([]Block, error) {
	var list []Block
	controls := 0
	for _, m := range fence.FindAllStringSubmatchIndex(page, -1) {
		text := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return page[m[2*i]:m[2*i+1]]
		}
		content := outdent(text(5), len(text(3)))
		switch text(4) {
		case "sh":
			b := Block{Line: 1 + strings.Count(page[:m[0]], "\n"), Script: content}
			switch text(1) {
			case "not run":
				b.Skip = text(2)
				controls++
			case "background until":
				b.Until = text(2)
				controls++
			case "on":
				b.On = text(2)
				controls++
			}
			list = append(list, b)
		case "text":
			if len(list) == 0 {
				return nil, fmt.Errorf("output %q has no shell block before it", content)
			}
			list[len(list)-1].Output = content
		}
	}
	if all := len(control.FindAllString(page, -1)); all != controls {
		return nil, fmt.Errorf("%d of %d control comments are not directly before a shell block", all-controls, all)
	}
	return list, nil
}

// outdent removes the indent of a block that belongs to an item of a list.
func outdent(s string, indent int) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(line[min(indent, len(line)-len(strings.TrimLeft(line, " "))):])
	}
	return b.String()
}

var digits = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f.]*`)

// blur replaces all numbers other than 0 and all identifiers, which differ from run to run.
func blur(s string) string {
	return digits.ReplaceAllStringFunc(s, func(n string) string {
		if n == "0" {
			return n
		}
		return "#"
	})
}

// Missing returns the first line of want that does not appear in got, in order; "" if all do.
func Missing(want, got string) string {
	at := strings.Split(blur(got), "\n")
	for line := range strings.Lines(want) {
		line = strings.TrimRight(line, "\n ")
		if strings.TrimSpace(line) == "" || strings.TrimSpace(line) == "..." {
			continue
		}
		parts := strings.Split(blur(strings.ReplaceAll(line, "...", "\x00")), "\x00")
		for i := range parts {
			parts[i] = spaces.ReplaceAllString(regexp.QuoteMeta(parts[i]), `\s+`)
		}
		pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + `\s*$`)
		for len(at) > 0 && !pattern.MatchString(at[0]) {
			at = at[1:]
		}
		if len(at) == 0 {
			return line
		}
		at = at[1:]
	}
	return ""
}

var spaces = regexp.MustCompile(` +`)
