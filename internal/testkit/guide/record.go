package guide

import (
	"fmt"
	"html"
	"regexp"
	"strings"
)

// Shot is a command of a recording, and its output.
type Shot struct{ Command, Output string }

const (
	lineHeight = 18
	charWidth  = 7.3
	lineDelay  = 0.12 // seconds between lines
	readDelay  = 1.5  // seconds between commands
)

// Record renders a terminal session as an SVG picture in which commands and output appear one line
// after the other. Viewers without animations see the whole session.
func Record(title string, shots []Shot) string {
	var text strings.Builder
	widest, lines, at := 0, 0, 0.0
	add := func(class, line string) {
		lines++
		widest = max(widest, len([]rune(line)))
		fmt.Fprintf(&text, "<text class=\"%s\" x=\"14\" y=\"%d\" style=\"animation-delay:%.2fs\">%s</text>\n",
			class, 40+lines*lineHeight, at, html.EscapeString(line))
		at += lineDelay
	}
	for i, s := range shots {
		if i > 0 {
			lines++
			at += readDelay
		}
		add("c", "$ "+s.Command)
		for line := range strings.Lines(s.Output) {
			if line = strings.TrimRight(line, " \n"); line != "" {
				add("o", line)
			} else {
				lines++
			}
		}
	}
	width, height := 28+int(charWidth*float64(widest)), 60+lines*lineHeight
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre; fill: #e5e7eb }
.c { fill: #86efac; font-weight: bold }
@media (prefers-reduced-motion: no-preference) { text { animation: show 0.01s linear both } }
@keyframes show { from { opacity: 0 } to { opacity: 1 } }
</style>
<rect width="%d" height="%d" rx="8" fill="#111827"/>
<circle cx="18" cy="18" r="5" fill="#ef4444"/><circle cx="36" cy="18" r="5" fill="#f59e0b"/><circle cx="54" cy="18" r="5" fill="#22c55e"/>
%s</svg>
`, width, height, html.EscapeString(title), width, height, text.String())
}

var recorded = regexp.MustCompile(`<text class="([co])"[^>]*>([^<]*)</text>`)

// Recorded returns the session of a picture that Record made, without empty lines.
func Recorded(picture string) []Shot {
	var list []Shot
	for _, m := range recorded.FindAllStringSubmatch(picture, -1) {
		line := html.UnescapeString(m[2])
		if m[1] == "c" {
			list = append(list, Shot{Command: strings.TrimPrefix(line, "$ ")})
		} else if len(list) > 0 {
			list[len(list)-1].Output += line + "\n"
		}
	}
	return list
}
