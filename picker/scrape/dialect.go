package scrape

import (
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Series names a gauge: its name and, optionally, labels that it must have. The
// zero value names none.
type Series struct {
	Name   string
	Labels []SeriesLabel
}

// SeriesLabel is a label that a series must have.
type SeriesLabel struct{ Name, Value string }

// ParseSeries reads name, name{label=value} or name{label="value",…}. "" is no
// series.
func ParseSeries(s string) (Series, error) {
	name, rest, labelled := strings.Cut(strings.TrimSpace(s), "{")
	out := Series{Name: strings.TrimSpace(name)}
	if !labelled {
		return out, checkName(out.Name, s == "")
	}
	inner, after, closed := strings.Cut(rest, "}")
	if !closed || strings.TrimSpace(after) != "" {
		return Series{}, fmt.Errorf("%q: a closing brace at the end is missing", s)
	}
	for _, part := range strings.Split(inner, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		label, value, ok := strings.Cut(part, "=")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if label = strings.TrimSpace(label); !ok || label == "" || value == "" {
			return Series{}, fmt.Errorf("%q: labels are written label=value", s)
		}
		out.Labels = append(out.Labels, SeriesLabel{label, value})
	}
	return out, checkName(out.Name, false)
}

func checkName(name string, optional bool) error {
	if name == "" && optional {
		return nil
	}
	for i, c := range name {
		letter := c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%q is not a metric name", name)
		}
	}
	if name == "" {
		return fmt.Errorf("the name of a metric is missing")
	}
	return nil
}

// Dialect says by which series the pages of an engine tell its gauges. Zero
// series are not told.
type Dialect struct {
	Name    string // value of the endpoints' engine label
	Waiting Series // requests
	Running Series // requests
	Use     Series // of KV memory, 0..1
	LoRA    Series // with the labels of vLLM's
	Cache   Series // with the labels of vLLM's or SGLang's
}

// Dialects choose how an endpoint's page is read: by its engine label among
// List, then among the built-in engines; without the label by Default, if that
// is in List, and otherwise by what the page names. Nil means no List. It is
// immutable.
type Dialects struct {
	Label   string // name of the engine label; "" means endpoint.LabelEngine
	Default string
	List    []Dialect

	tables map[string]*ownNames // by name
}

// NewDialects prepares dialects.
func NewDialects(label, otherwise string, list []Dialect) *Dialects {
	d := &Dialects{Label: label, Default: otherwise, List: list, tables: map[string]*ownNames{}}
	if d.Label == "" {
		d.Label = endpoint.LabelEngine
	}
	for i := range list {
		d.tables[list[i].Name] = newOwnNames(&list[i])
	}
	return d
}

// of returns how the page of ep is read: by a dialect of the user's, or by the
// names of an engine, EngineUnknown being the first that the page names.
func (d *Dialects) of(ep *endpoint.Endpoint) (*ownNames, endpoint.EngineType) {
	if d == nil {
		return nil, ep.Engine
	}
	value, labelled := ep.Label(d.Label)
	if !labelled {
		value = d.Default
	}
	if own := d.tables[value]; own != nil {
		return own, endpoint.EngineOf(value)
	}
	if labelled && endpoint.EngineOf(value) != endpoint.EngineUnknown {
		return nil, endpoint.EngineOf(value)
	}
	return nil, ep.Engine
}

// ownNames is a Dialect as the scanner uses it.
type ownNames struct{ series []ownSeries }

type ownSeries struct {
	metric
	labels []SeriesLabel
}

func newOwnNames(d *Dialect) *ownNames {
	out := &ownNames{}
	add := func(s Series, w what) {
		if s.Name != "" {
			out.series = append(out.series, ownSeries{metric{name: s.Name, what: w}, s.Labels})
		}
	}
	add(d.Waiting, whatWaiting)
	add(d.Running, whatRunning)
	add(d.Use, whatUse)
	add(d.LoRA, whatLoRA)
	add(d.Cache, whatConfig)
	add(Series{Name: "process_start_time_seconds"}, whatStarted)
	return out
}

// find returns the series that a line is about and what follows its name.
// Several series may share a name and differ in labels.
func (d *ownNames) find(line []byte, labels *labelSet) (*metric, []byte) {
	for i := range d.series {
		s := &d.series[i]
		end := len(s.name)
		if len(line) <= end || string(line[:end]) != s.name || !endsName(line[end]) {
			continue
		}
		if len(s.labels) == 0 || s.matches(line[end:], labels) {
			return &s.metric, line[end:]
		}
	}
	return nil, nil
}

// matches reports whether the line's labels are those that the series must have.
func (s *ownSeries) matches(rest []byte, scratch *labelSet) bool {
	labels, _, ok := split(rest)
	if !ok {
		return false
	}
	scratch.rest = labels
	left := len(s.labels)
	for {
		name, value, ok := scratch.next()
		if !ok {
			return left == 0
		}
		for _, want := range s.labels {
			if string(name) == want.Name && string(value) == want.Value {
				left--
			}
		}
	}
}
