package top

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/statustext"
)

// style is how text is drawn. All text can be read without colours.
type style uint8

const (
	plain style = iota
	strong
	dim
	good
	warn
	bad
	heading
	selected
)

// span is text in one style, without control characters.
type span struct {
	text  string
	style style
}

// line is one line of a frame.
type line []span

// text returns a frame as lines of plain text without trailing spaces.
func text(frame []line) string {
	var b strings.Builder
	for _, l := range frame {
		var row strings.Builder
		for _, s := range l {
			row.WriteString(s.text)
		}
		b.WriteString(strings.TrimRight(row.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// clean strips text of control characters and of marks that change its direction.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, s)
}

// maxCluster is the maximum size of one drawn character in bytes. Marks beyond it are dropped.
const maxCluster = 16

// clusters calls f for each drawn character of s with its width in cells.
func clusters(s string, f func(text string, width int) bool) {
	state := -1
	for len(s) > 0 {
		var c string
		var width int
		c, s, width, state = uniseg.FirstGraphemeClusterInString(s, state)
		if len(c) > maxCluster {
			c = string([]rune(c)[:1])
		}
		if width > 0 && !f(c, width) {
			return
		}
	}
}

// fit returns clean text of exactly width cells. A cut is marked.
func fit(s string, width int, right bool) string {
	var b strings.Builder
	used, cut := 0, false
	s = clean(s)
	clusters(s, func(c string, w int) bool {
		if used+w > width {
			cut = true
			return false
		}
		b.WriteString(c)
		used += w
		return true
	})
	out := b.String()
	if cut && width > 0 {
		for used >= width { // make room for the mark
			last := ""
			w := 0
			clusters(out, func(c string, cw int) bool { last, w = c, cw; return true })
			out, used = strings.TrimSuffix(out, last), used-w
		}
		out, used = out+"~", used+1
	}
	pad := strings.Repeat(" ", max(width-used, 0))
	if right {
		return pad + out
	}
	return out + pad
}

// state is what the user has chosen.
type state struct {
	sort     int    // in sortings
	filter   string // part of an endpoint's address, name, state or model
	typing   bool   // the filter is being typed
	paused   bool
	help     bool
	selected int  // position among the shown endpoints; -1: none
	top      int  // first shown endpoint
	live     bool // keys are handled: the selection is shown
}

// severityStyle is the style of problems.
func severityStyle(s problems.Severity) style {
	switch s {
	case problems.Critical:
		return bad
	case problems.Warning:
		return warn
	case problems.Notice:
		return dim
	}
	return good
}

// stateStyle is the style of a replica's state.
func stateStyle(st *server.Status, list []problems.Found) style {
	if len(list) > 0 && list[0].Severity != problems.Notice {
		return severityStyle(list[0].Severity)
	}
	if st.State == "ready" {
		return good
	}
	return warn
}

// head returns the first lines: state, group and rates.
func (b *board) head(s *state, width int) []line {
	title := "grapevine top"
	if s.paused {
		title += " (paused)"
	}
	if b.first == nil {
		return []line{{{fit(title, width, false), strong}}, {{fit("no replica answers", width, false), bad}}}
	}
	urgent := problems.Urgent(b.problems)
	what := statustext.State(b.first)
	switch {
	case urgent == 1:
		what += ", 1 problem"
	case urgent > 1:
		what += fmt.Sprintf(", %d problems", urgent)
	}
	left := title + "  " + clean(b.first.Name) + " "
	share := 0.0
	if b.requests > 0 {
		share = 100 * b.errors / b.requests
	}
	up := 0
	for _, m := range b.first.Members {
		if m.State == "up" || m.State == "self" {
			up++
		}
	}
	of := ""
	if n := max(len(b.first.Members), b.asked); n > b.answered {
		of = fmt.Sprintf(" (of %d of %d replicas)", b.answered, n)
	}
	rates := fmt.Sprintf("requests %.1f/s, errors %.1f/s (%.1f%%)%s, hits %s, waiting %d", b.requests, b.errors, share, of, statustext.Hits(b.cached, b.prompt), b.waiting)
	return []line{
		{{fit(left, min(uniseg.StringWidth(left), width), false), strong}, {fit(what, max(width-uniseg.StringWidth(left), 0), false), stateStyle(b.first, b.problems)}},
		{{fit("group: "+b.first.Cluster.Line, width, false), plain}},
		{{fit(rates, width, false), plain}},
	}
}

// problemLines returns the problems in at most most lines, 0 for no limit.
func (b *board) problemLines(width, most int) (out []line) {
	if len(b.problems) == 0 {
		return []line{{{fit("no problems", width, false), good}}}
	}
	for i := range b.problems {
		f := &b.problems[i]
		lines := []line{{{fit(statustext.Problem(f), width, false), severityStyle(f.Severity)}}}
		if f.Severity != problems.Notice && len(f.Action) > 0 {
			lines = append(lines, line{{fit("  do: "+strings.ReplaceAll(f.Action[0], "`", ""), width, false), plain}})
		}
		if left := len(b.problems) - i; most > 0 && (len(out)+len(lines) > most || left > 1 && len(out)+len(lines) == most) {
			return append(out, line{{fit(fmt.Sprintf("and %d more: grapevine status", left), width, false), dim}})
		}
		out = append(out, lines...)
	}
	return out
}

// helpLines explains keys and columns.
func helpLines(width int) (out []line) {
	for _, text := range []string{
		"q         quit",
		"j k arrows PgUp PgDn g G    select an endpoint; its problems are below the table",
		"s S       sort by the next or previous column: " + strings.Join(sortNames(), ", "),
		"/         show only endpoints whose address, name, state or models contain a text",
		"p space   pause",
		"?         close this help",
		"",
		"FLIGHT is requests in flight of all replicas, WAIT is the engine's own queue.",
		"HITS is the share of prompt tokens that the engine found in cache.",
		"PREDICTED and OBSERVED are recent times to the first token.",
		"Rates cover the last 10 s, at the replicas named with --admin.",
		"grapevine help CODE explains a problem.",
	} {
		out = append(out, line{{fit(text, width, false), plain}})
	}
	return out
}

// roomy is the height from which frames have blank lines.
const roomy = 16

// frame draws the board for a terminal of that size. With height 0 it has all endpoints.
func (b *board) frame(s *state, width, height int) []line {
	out := b.head(s, width)
	blank := line{{strings.Repeat(" ", max(width, 0)), plain}}
	if s.help {
		return b.close(s, append(append(out, blank), helpLines(width)...), width, height)
	}
	if height > 0 && height < roomy {
		blank = nil
	}
	most := 0
	if height > 0 {
		most = max(height/3, 2)
	}
	if blank != nil {
		out = append(out, blank)
	}
	out = append(out, b.problemLines(width, most)...)
	if blank != nil {
		out = append(out, blank)
	}
	if b.first == nil {
		return b.close(s, out, width, height)
	}
	below := b.replicaLines(width, height)
	room := 0
	if height > 0 {
		room = height - len(out) - 1 // the last line has the keys
		if room-len(below) < 6 {     // endpoints are more important
			below = nil
		}
		room = max(room-len(below), 3)
	}
	out = append(out, b.endpointLines(s, width, room)...)
	if len(below) > 0 {
		out = append(append(out, blank), below[1:]...)
	}
	return b.close(s, out, width, height)
}

// close fits a frame into the height and adds the line with the keys.
func (b *board) close(s *state, out []line, width, height int) []line {
	if height <= 0 {
		return out
	}
	out = out[:min(len(out), height-1)]
	for len(out) < height-1 {
		out = append(out, line{{strings.Repeat(" ", width), plain}})
	}
	keys := fmt.Sprintf("q quit  s sort: %s  / filter  p pause  ? help", sortings[s.sort].name)
	if s.typing {
		keys = "filter: " + s.filter + "_  (Enter: use, Esc: clear)"
	} else if s.filter != "" {
		keys += "  filter: " + s.filter
	}
	return append(out, line{{fit(keys, width, false), heading}})
}
