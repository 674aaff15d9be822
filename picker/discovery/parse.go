package discovery

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const defaultNamespace = "default"

// Load reads the endpoints file at path. It returns the endpoints without problems, in the order of
// the file, and all problems. A caller that needs a complete list must check the problems.
func Load(path string) ([]Endpoint, []Problem) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, []Problem{unreadable(path, err)}
	}
	return Parse(path, data)
}

// Parse parses an endpoints file; file is its name in problems.
func Parse(file string, data []byte) ([]Endpoint, []Problem) {
	root, report := strict.Parse(file, data)
	if !root.Found() {
		return nil, report.Problems()
	}
	p := parser{seen: map[string]int{}, names: map[string]int{}}
	doc := root.Object()
	p.defaults(doc.Field("defaults").Object())
	list, _ := doc.Need("endpoints").List()
	for _, n := range list {
		before := report.Len()
		e := p.endpoint(n)
		if report.Len() == before {
			p.out = append(p.out, e)
		}
	}
	doc.Done()
	return p.out, report.Problems()
}

// parser holds state shared by all entries.
type parser struct {
	base  Endpoint
	out   []Endpoint
	seen  map[string]int // host:port -> line
	names map[string]int // namespace/name -> line
}

func (p *parser) defaults(o *strict.Object) {
	p.base = Endpoint{Namespace: defaultNamespace, Labels: map[string]string{}}
	p.common(o, &p.base)
	o.Done()
}

// common reads the fields shared by endpoints and defaults.
func (p *parser) common(o *strict.Object, e *Endpoint) {
	if s, ok := o.Field("namespace").Text(); ok {
		e.Namespace = s
	}
	if port, ok := portOf(o.Field("port")); ok {
		e.Port = port
	}
	for _, l := range o.Field("labels").Object().Entries() {
		if v, ok := l.Value.Text(); ok {
			e.Labels[l.Name] = v
		}
	}
	if m, ok := models(o.Field("model")); ok {
		e.Models = m
	}
	p.engine(o, e)
	p.events(o, e)
}

func (p *parser) endpoint(n strict.Node) Endpoint {
	e := p.base
	e.Labels, e.Line = maps.Clone(p.base.Labels), n.Line()
	o := n.Object()
	e.Name, _ = o.Field("name").Text()
	address := o.Need("address")
	p.common(o, &e)
	e.Host = p.host(address)
	e.Metrics = metricsURL(o.Field("metrics"))
	o.Done()
	if !o.Found() {
		return e
	}
	if e.Port == 0 && !o.Field("port").Found() {
		n.Problem("give it here or under defaults", "%s.port is missing", n.Path())
	}
	if e.Name == "" {
		e.Name = e.HostPort()
	}
	p.duplicates(n, &e)
	return e
}

func (p *parser) duplicates(n strict.Node, e *Endpoint) {
	if e.Host == "" || e.Port == 0 {
		return
	}
	at := strings.ToLower(e.HostPort())
	if line, twice := p.seen[at]; twice {
		n.Problem(fmt.Sprintf("first on line %d", line), "endpoint %s is given twice", at)
		return
	}
	p.seen[at] = n.Line()
	name := e.Namespace + "/" + e.Name
	if line, twice := p.names[name]; twice {
		n.Problem(fmt.Sprintf("first on line %d", line), "two endpoints have the name %s", name)
		return
	}
	p.names[name] = n.Line()
	for i := range p.out {
		if o := &p.out[i]; o.Host == e.Host && shared(o.Events, e.Events) {
			n.Problem("two engines on one host publish on different ports", "endpoints %s and %s read events from the same port", o.Name, e.Name)
			return
		}
	}
}

// engine reads the engine type from its field or its label, which must not contradict each other.
func (p *parser) engine(o *strict.Object, e *Endpoint) {
	field, label := o.Field("engine"), e.Labels[endpoint.LabelEngine]
	word, ok := field.Enum(endpoint.EngineLabels()...)
	own := o.Field("labels").Object().Field(endpoint.LabelEngine).Found()
	switch {
	case ok && own && endpoint.EngineOf(label) != endpoint.EngineOf(word):
		field.Problem("give one of them", "%s contradicts the label %s: %s", field.Path(), endpoint.LabelEngine, label)
	case ok:
		e.Labels[endpoint.LabelEngine] = word
	}
	e.Engine = endpoint.EngineOf(e.Labels[endpoint.LabelEngine])
}

// events reads the event source. Absent fields keep their default; null removes the source.
func (p *parser) events(o *strict.Object, e *Endpoint) {
	n := o.Field("events")
	if n.IsNull() {
		e.Events = endpoint.Events{}
	}
	if !n.Found() {
		return
	}
	before := n.Problems()
	ev := n.Object()
	if port, ok := portOf(ev.Field("port")); ok {
		e.Events.Port, e.Events.Inbound = int(port), false
	}
	if in, ok := ev.Field("dialsIn").Bool(); ok {
		if e.Events.Inbound = in; in && ev.Field("port").Found() {
			n.Problem("an engine that connects has no port to connect to", "%s has both port and dialsIn", n.Path())
		} else if in {
			e.Events.Port = 0
		}
	}
	if port, ok := portOf(ev.Field("replayPort")); ok {
		e.Events.ReplayPort = int(port)
	}
	if s, ok := ev.Field("topic").Text(); ok {
		e.Events.Topic = s
	}
	if r, ok := ev.Field("ranks").Int(1, maxRanks); ok {
		e.Events.Ranks = int(r)
	}
	ev.Done()
	if e.Events.Port == 0 && !e.Events.Inbound && n.Problems() == before {
		n.Problem("the port of the engine's event publisher, often 5557; dialsIn: true where it connects to the picker", "%s.port is missing", n.Path())
	}
	if e.Events.Port == 0 && !e.Events.Inbound {
		e.Events = endpoint.Events{}
		return
	}
	e.Events.Ranks = max(e.Events.Ranks, 1)
	if last := max(e.Events.Port, e.Events.ReplayPort) + e.Events.Ranks - 1; last > maxPort {
		n.Problem("", "%s: the last rank's port would be %d, more than %d", n.Path(), last, maxPort)
	}
	if clash(e.Events) {
		n.Problem("rank r uses port + r and replayPort + r", "%s: the ranks' event ports and replay ports overlap", n.Path())
	}
}

// shared reports whether two sources on one host share a publisher.
func shared(a, b endpoint.Events) bool {
	return a.Port > 0 && b.Port > 0 && a.Port < b.Port+b.Ranks && b.Port < a.Port+a.Ranks
}

// clash reports whether one rank's event port is another's replay port.
func clash(e endpoint.Events) bool {
	apart := e.Port - e.ReplayPort
	return e.Port > 0 && e.ReplayPort > 0 && max(apart, -apart) < e.Ranks
}
