package scrape

import (
	"fmt"
	"io"
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

// Dialect maps gauges to the series of an engine's page. Zero series are not read. A Dialect that has
// only Custom adds these gauges to the built-in names of its engine.
type Dialect struct {
	Name    string // value of the engine label
	Waiting Series // requests
	Running Series // requests
	Use     Series // KV memory use, 0..1
	LoRA    Series // with vLLM's labels
	Cache   Series // with vLLM's or SGLang's labels
	Custom  []CustomGauge
}

// adds reports whether the Dialect leaves the built-in names in use.
func (d *Dialect) adds() bool {
	return d.Waiting.Name+d.Running.Name+d.Use.Name+d.LoRA.Name+d.Cache.Name == ""
}

// Dialects selects how an endpoint's page is read: by its engine label among List, then among the
// built-in engines. Without the label, Default applies if it is in List; otherwise the page's
// content decides. nil means no List. It is immutable.
type Dialects struct {
	Label   string // name of the engine label; "" means endpoint.LabelEngine
	Default string
	List    []Dialect

	tables map[string]*ownNames // by name
	usual  *ownNames            // for endpoints that no entry of List is for; nil: the built-in names alone
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
	d.usual = added(list)
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
	return d.usual, ep.Engine
}

// Read reads one page of ep in the way that d selects.
func (d *Dialects) Read(s *Scanner, page io.Reader, ep *endpoint.Endpoint) (Page, error) {
	own, engine := d.of(ep)
	return s.scan(page, own, engine)
}

// ownNames is a Dialect in the scanner's form.
type ownNames struct {
	series []ownSeries   // instead of the built-in names; nil: in addition to them
	custom []CustomGauge // by name, each name once
}

type ownSeries struct {
	metric
	labels []SeriesLabel
}

func newOwnNames(d *Dialect) *ownNames {
	out := &ownNames{custom: d.Custom}
	if d.adds() {
		return out
	}
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
		if rest := afterName(line, s.name); rest != nil && matches(s.labels, rest, labels) {
			return &s.metric, rest
		}
	}
	return nil, nil
}

// afterName returns the rest of a line of the named series, nil for lines of others.
func afterName(line []byte, name string) []byte {
	if end := len(name); len(line) > end && string(line[:end]) == name && endsName(line[end]) {
		return line[end:]
	}
	return nil
}

// matches reports whether the rest of a line has the required labels.
func matches(required []SeriesLabel, rest []byte, scratch *labelSet) bool {
	if len(required) == 0 {
		return true
	}
	labels, _, ok := split(rest)
	if !ok {
		return false
	}
	scratch.rest = labels
	left := len(required)
	for {
		name, value, ok := scratch.next()
		if !ok {
			return left == 0
		}
		for _, want := range required {
			if string(name) == want.Name && string(value) == want.Value {
				left--
			}
		}
	}
}
