package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/statustext"
)

// column is one column of endpoints.
type column struct {
	title string
	width int
	right bool
	cell  func(*row) string
}

// columns are the columns of endpoints, in the order in which wider terminals get them. The first
// eight fit into 80 cells.
var columns = []column{
	{"ENDPOINT", 21, false, func(r *row) string { return r.Address }},
	{"STATE", 14, false, func(r *row) string { return statustext.Health(r.EndpointStatus) }},
	{"FLIGHT", 6, true, func(r *row) string { return fmt.Sprint(r.InFlight) }},
	{"WAIT", 5, true, func(r *row) string { w, _, _ := statustext.Gauges(r.EndpointStatus); return w }},
	{"KV", 4, true, func(r *row) string { _, _, use := statustext.Gauges(r.EndpointStatus); return use }},
	{"HITS", 5, true, func(r *row) string { return statustext.Hits(r.cached, r.prompt) }},
	{"PREDICTED", 9, true, func(r *row) string { p, _ := statustext.Forecast(r.EndpointStatus); return p }},
	{"OBSERVED", 8, true, func(r *row) string { _, o := statustext.Forecast(r.EndpointStatus); return o }},
	{"KNOWLEDGE", 12, false, func(r *row) string { return r.Knowledge }},
	{"REQ/S", 6, true, func(r *row) string { return fmt.Sprintf("%.1f", r.requests) }},
	{"ERR/S", 6, true, func(r *row) string { return fmt.Sprintf("%.1f", r.errors) }},
	{"RUN", 4, true, func(r *row) string { _, run, _ := statustext.Gauges(r.EndpointStatus); return run }},
	{"NAME", 20, false, func(r *row) string { return r.Name }},
	{"MODELS", 24, false, func(r *row) string { return strings.Join(r.Models, ",") }},
}

// sorting is an order of endpoints.
type sorting struct {
	name    string
	compare func(a, b *row) int
}

// most orders by a number, the highest first.
func most[T cmp.Ordered](of func(*row) T) func(a, b *row) int {
	return func(a, b *row) int { return cmp.Compare(of(b), of(a)) }
}

var sortings = []sorting{
	{"trouble", func(a, b *row) int { return statustext.CompareProblems(a.EndpointStatus, b.EndpointStatus) }},
	{"endpoint", func(a, b *row) int { return cmp.Compare(a.Address, b.Address) }},
	{"in flight", most(func(r *row) int64 { return r.InFlight })},
	{"waiting", most(func(r *row) int { return r.Waiting })},
	{"KV use", most(func(r *row) float64 { return r.KVUse })},
	{"hits", most(func(r *row) float64 { return float64(r.cached) / float64(max(r.prompt, 1)) })},
	{"observed", most(func(r *row) float64 { return r.ObservedS })},
	{"errors", most(func(r *row) float64 { return r.errors })},
}

func sortNames() (names []string) {
	for _, s := range sortings {
		names = append(names, s.name)
	}
	return names
}

// shown returns the endpoints that pass the filter, in order.
func (b *board) shown(s *state) (list []*row) {
	want := strings.ToLower(s.filter)
	for i := range b.endpoints {
		r := &b.endpoints[i]
		if strings.Contains(strings.ToLower(strings.Join(append([]string{r.Address, r.Name, statustext.Health(r.EndpointStatus), r.Knowledge}, r.Models...), "\x00")), want) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return cmp.Or(sortings[s.sort].compare(a, b), cmp.Compare(a.Address, b.Address)) })
	return list
}

// counts describes how many endpoints are in each state.
func counts(rows []row) string {
	by, names := map[string]int{}, []string{}
	for i := range rows {
		name, _, _ := strings.Cut(statustext.Health(rows[i].EndpointStatus), ",")
		if by[name] == 0 {
			names = append(names, name)
		}
		by[name]++
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", by[name], name)
	}
	return strings.Join(names, ", ")
}

// chosen returns the columns for a width.
func chosen(width int, rows []*row) []column {
	out := slices.Clone(columns[:8])
	used := 7
	for _, c := range out {
		used += c.width
	}
	for _, c := range columns[8:] {
		if used+1+c.width > width {
			break
		}
		out, used = append(out, c), used+1+c.width
	}
	longest := 0
	for _, r := range rows {
		longest = max(longest, uniseg.StringWidth(clean(r.Address)))
	}
	out[0].width = min(max(out[0].width, longest), out[0].width+max(width-used, 0)) // IPv6 addresses are longer
	return out
}

// endpointLines returns the table of endpoints in at most room lines, 0 for all.
func (b *board) endpointLines(s *state, width, room int) []line {
	list := b.shown(s)
	title := fmt.Sprintf("%d endpoints: %s", len(b.endpoints), counts(b.endpoints))
	if len(b.endpoints) == 0 {
		title = "no endpoints"
	}
	if len(list) < len(b.endpoints) {
		title += fmt.Sprintf("; %d shown", len(list))
	}
	cols := chosen(width, list)
	cells := func(of func(*column) string, st style) line {
		var b strings.Builder
		for i := range cols {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(fit(of(&cols[i]), cols[i].width, cols[i].right))
		}
		return line{{fit(b.String(), width, false), st}}
	}
	out := []line{{{fit(title, width, false), strong}}, cells(func(c *column) string { return c.title }, heading)}
	s.selected = min(s.selected, len(list)-1)
	var detail []line
	if s.selected >= 0 && room > 0 {
		for _, t := range statustext.Problems(list[s.selected].EndpointStatus) {
			detail = append(detail, line{{fit(list[s.selected].Address+" "+t, width, false), plain}})
		}
		detail = detail[:min(len(detail), max(room-4, 0), 3)]
	}
	rows := len(list)
	if room > 0 {
		rows = max(room-len(out)-len(detail), 1)
	}
	s.top = max(min(s.top, len(list)-rows, max(s.selected, 0)), s.selected-rows+1, 0)
	for i := s.top; i < min(len(list), s.top+rows); i++ {
		st := severityStyle(b.severity(list[i].EndpointStatus))
		if st == good {
			st = plain
		}
		if s.live && i == s.selected {
			st = selected
		}
		out = append(out, cells(func(c *column) string { return c.cell(list[i]) }, st))
	}
	return append(out, detail...)
}

// maxReplicas is how many replicas a frame of limited height has.
const maxReplicas = 5

// replicaLines returns a blank line and the table of replicas, those with trouble first. It is empty
// without a group.
func (b *board) replicaLines(width, height int) []line {
	members := slices.Clone(b.first.Members)
	if len(members) == 0 {
		return nil
	}
	fine := func(m *server.MemberStatus) bool { return m.State == "up" || m.State == "self" }
	slices.SortStableFunc(members, func(a, b server.MemberStatus) int {
		switch {
		case fine(&a) == fine(&b):
			return cmp.Compare(a.Name, b.Name)
		case fine(&a):
			return 1
		}
		return -1
	})
	rowOf := func(cells ...string) string {
		widths := []int{24, 9, 9, 9, 9, 7, 7, 8}
		var b strings.Builder
		for i, c := range cells {
			b.WriteString(fit(c, widths[i], i > 2) + " ")
		}
		return b.String()
	}
	out := []line{{}, {{fit(rowOf("REPLICA", "STATE", "PHASE", "RTT", "CLOCK", "BEHIND", "DIFFER", "DROPPED"), width, false), heading}}}
	for i := range members {
		m := &members[i]
		if height > 0 && i == maxReplicas-1 && len(members) > maxReplicas {
			return append(out, line{{fit(fmt.Sprintf("and %d more: grapevine members", len(members)-i), width, false), dim}})
		}
		st := plain
		if !fine(m) {
			st = warn
		}
		out = append(out, line{{fit(rowOf(m.Name, m.State, m.Phase, fmt.Sprintf("%.1f ms", m.RTTMS), statustext.Clock(m), fmt.Sprint(m.Behind), fmt.Sprint(m.Differ), fmt.Sprint(m.Dropped)), width, false), st}})
	}
	return out
}
