package scrape

import "math"

// Combine is the rule for several series of one custom gauge, for example one for each data-parallel
// rank.
type Combine uint8

// Rules. The zero value takes the first series of the page.
const (
	CombineFirst Combine = iota
	CombineSum
	CombineMean
	CombineMax
)

// combineNames are the rules' names in the configuration.
var combineNames = [...]string{"first", "sum", "mean", "max"}

// ParseCombine returns the rule of a name. "" is CombineFirst.
func ParseCombine(name string) (Combine, bool) {
	for i, n := range combineNames {
		if n == name {
			return Combine(i), true
		}
	}
	return CombineFirst, name == ""
}

// CustomGauge is a figure of an engine's page that the configuration names.
type CustomGauge struct {
	Name    string // key of gauge.Values.Custom
	Series  Series
	Combine Combine
}

// added returns the gauges that entries of list add to built-in names, nil if there are none. If
// two entries name the same gauge, the first counts.
func added(list []Dialect) *ownNames {
	var out *ownNames
	seen := map[string]bool{}
	for i := range list {
		if !list[i].adds() {
			continue
		}
		for _, g := range list[i].Custom {
			if out == nil {
				out = &ownNames{}
			}
			if !seen[g.Name] {
				seen[g.Name] = true
				out.custom = append(out.custom, g)
			}
		}
	}
	return out
}

// customSum accumulates the series of one custom gauge.
type customSum struct {
	first, sum, most float64
	count            int
}

func (s *customSum) add(v float64) {
	if s.count == 0 {
		s.first, s.most = v, v
	}
	s.sum, s.most = s.sum+v, max(s.most, v)
	s.count++
}

func (s *customSum) value(rule Combine) float64 {
	switch rule {
	case CombineSum:
		return s.sum
	case CombineMean:
		return s.sum / float64(s.count)
	case CombineMax:
		return s.most
	default:
		return s.first
	}
}

// custom adds a line to the custom gauges that it belongs to.
func (s *Scanner) custom(line []byte) {
	for i := range s.own.custom {
		g := &s.own.custom[i]
		rest := afterName(line, g.Series.Name)
		if rest == nil || !matches(g.Series.Labels, rest, &s.labels) {
			continue
		}
		_, text, ok := split(rest)
		value, finite := signed(text)
		if !ok || !finite {
			s.page.skipped++
			continue
		}
		s.sums[i].add(value)
	}
}

// startCustom prepares for the custom gauges of a page.
func (s *Scanner) startCustom() {
	s.sums = s.sums[:0]
	if s.own != nil {
		s.sums = append(s.sums, make([]customSum, len(s.own.custom))...)
	}
}

// customValues returns the custom gauges that the page has, nil if it has none.
func (s *Scanner) customValues() map[string]float64 {
	var out map[string]float64
	for i := range s.sums {
		if s.sums[i].count == 0 {
			continue
		}
		if out == nil {
			out = make(map[string]float64, len(s.sums))
		}
		g := &s.own.custom[i]
		out[g.Name] = s.sums[i].value(g.Combine)
	}
	return out
}

// signed parses a value whose absolute value is at most maxNumber.
func signed(b []byte) (float64, bool) {
	if len(b) > 1 && b[0] == '-' {
		v, ok := number(b[1:])
		return math.Copysign(v, -1), ok && b[1] != '-' && b[1] != '+'
	}
	return number(b)
}
