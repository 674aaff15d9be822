package scrape

import (
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Series identifies a gauge by its name and, optionally, required labels. The zero value is none.
type Series struct {
	Name   string
	Labels []SeriesLabel
}

// SeriesLabel is a required label of a series.
type SeriesLabel struct{ Name, Value string }

// ParseSeries parses name, name{label=value} or name{label="value",…}. "" is no series.
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

// Dialect maps gauges to the series of an engine's page. Zero series are not read.
type Dialect struct {
	Name    string // value of the engine label
	Waiting Series // requests
	Running Series // requests
	Use     Series // KV memory use, 0..1
	LoRA    Series // with vLLM's labels
	Cache   Series // with vLLM's or SGLang's labels
}

// Dialects selects how an endpoint's page is read: by its engine label among List, then among the
// built-in engines. Without the label, Default applies if it is in List; otherwise the page's
// content decides. nil means no List. It is immutable.
type Dialects struct {
	Label   string // name of the engine label; "" means endpoint.LabelEngine
	Default string
	List    []Dialect

	tables map[string]*ownNames // by name
}

// NewDialects returns Dialects ready for use.
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

// of returns how to read ep's page: by a configured dialect, or by an engine's names. EngineUnknown
// means the first engine that the page names.
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

// ownNames is a Dialect in the scanner's form.
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

// find returns the series of a line and the rest after its name. Several series may share a name
// and differ in labels.
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

// matches reports whether the line has the series' required labels.
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
