package plugins

import (
	"fmt"
	"slices"
	"sort"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// byLabelParams are the parameters of by-label.
type byLabelParams struct {
	Label         string   `json:"label"`
	ValidValues   []string `json:"validValues,omitempty"`
	AllowsNoLabel bool     `json:"allowsNoLabel"`
}

// byLabel keeps endpoints whose label has one of the values.
type byLabel struct{ byLabelParams }

func newByLabel(p byLabelParams) (plugin.Plugin, error) {
	return plugin.Plugin{Filter: byLabel{p}}, plugin.Faults(
		plugin.Require(p.Label != "", "label", "is needed"),
		plugin.Require(len(p.ValidValues) > 0 || p.AllowsNoLabel, "validValues", "must name at least one value"))
}

// Filter implements cycle.Filter.
func (f byLabel) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		v, ok := c.At(k).Label(f.Label)
		keep[k] = ok && slices.Contains(f.ValidValues, v) || !ok && f.AllowsNoLabel
	}
}

// selectorParams are the parameters of label-selector-filter: a Kubernetes label selector. All of
// its parts must match. The by-label form is accepted too.
type selectorParams struct {
	MatchLabels      map[string]string `json:"matchLabels,omitempty"`
	MatchExpressions []labelTerm       `json:"matchExpressions,omitempty"`
	Label            string            `json:"label,omitempty"`
	ValidValues      []string          `json:"validValues,omitempty"`
	AllowsNoLabel    bool              `json:"allowsNoLabel,omitempty"`
}

type labelTerm struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// selector keeps endpoints whose labels match all expressions.
type selector struct{ terms []labelTerm }

func newSelector(p selectorParams) (plugin.Plugin, error) {
	if p.Label != "" {
		return newByLabel(byLabelParams{p.Label, p.ValidValues, p.AllowsNoLabel})
	}
	var s selector
	var errs []error
	for name, value := range p.MatchLabels {
		s.terms = append(s.terms, labelTerm{name, "In", []string{value}})
	}
	sort.Slice(s.terms, func(i, j int) bool { return s.terms[i].Key < s.terms[j].Key })
	for i, e := range p.MatchExpressions {
		errs = append(errs, e.check(fmt.Sprintf("matchExpressions[%d]", i)))
		s.terms = append(s.terms, e)
	}
	errs = append(errs, plugin.Require(len(s.terms) > 0, "matchLabels", "or matchExpressions must select something"))
	return plugin.Plugin{Filter: s}, plugin.Faults(errs...)
}

func (e labelTerm) check(at string) error {
	if e.Key == "" {
		return &plugin.ParamError{Field: at + ".key", Message: "is needed"}
	}
	switch e.Operator {
	case "In", "NotIn":
		return plugin.Require(len(e.Values) > 0, at+".values", "must name at least one value")
	case "Exists", "DoesNotExist":
		return plugin.Require(len(e.Values) == 0, at+".values", "must be empty for this operator")
	default:
		return &plugin.ParamError{Field: at + ".operator", Message: "must be In, NotIn, Exists or DoesNotExist"}
	}
}

func (e *labelTerm) holds(value string, found bool) bool {
	switch e.Operator {
	case "In":
		return found && slices.Contains(e.Values, value)
	case "NotIn":
		return !found || !slices.Contains(e.Values, value)
	case "Exists":
		return found
	default:
		return !found
	}
}

// Filter implements cycle.Filter.
func (s selector) Filter(c *cycle.Cycle, keep []bool) {
	for i := range s.terms {
		term := &s.terms[i]
		for k := range keep {
			v, ok := c.At(k).Label(term.Key)
			keep[k] = keep[k] && term.holds(v, ok)
		}
	}
}
