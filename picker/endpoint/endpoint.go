package endpoint

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// Role is the set of phases that an endpoint serves.
type Role uint8

// Phases.
const (
	RoleDecode Role = 1 << iota
	RolePrefill
	RoleEncode
	Roles // number of possible sets
)

// RoleOf parses the role label. A missing or unknown value means that the endpoint serves whole
// requests only.
func RoleOf(label string) Role {
	switch label {
	case "prefill":
		return RolePrefill
	case "both", "prefill-decode":
		return RolePrefill | RoleDecode
	case "encode":
		return RoleEncode
	case "encode-prefill":
		return RoleEncode | RolePrefill
	case "encode-prefill-decode":
		return RoleEncode | RolePrefill | RoleDecode
	default:
		return RoleDecode
	}
}

// EngineType is the engine software of an endpoint.
type EngineType uint8

// Engine types. The zero value means that the metrics page determines the type.
const (
	EngineUnknown EngineType = iota
	EngineVLLM
	EngineSGLang
	EngineTRTLLM
	EngineTriton
)

// engines has the facts of each engine type that several packages need. The metrics of each type are in
// package scrape, and what is known about its rendering in internal/prompt.
var engines = [...]struct {
	label   string   // of the engine-type label and of configurations
	other   []string // further values of the label
	version string   // path of the HTTP request for its version
	costly  bool     // answering that request takes the engine some time
}{
	EngineUnknown: {label: "unknown", version: "/version"},
	EngineVLLM:    {label: "vllm", version: "/version"},
	EngineSGLang:  {label: "sglang", version: "/server_info", costly: true},
	EngineTRTLLM:  {label: "trtllm-serve", other: []string{"trtllm"}, version: "/version"},
	EngineTriton:  {label: "triton-tensorrt-llm", other: []string{"triton"}, version: "/version"},
}

// EngineLabels returns the label values of all engine types but EngineUnknown. The caller may change
// the slice.
func EngineLabels() []string {
	labels := make([]string, 0, len(engines)-1)
	for _, e := range engines[1:] {
		labels = append(labels, e.label)
	}
	return labels
}

// EngineOf parses the engine-type label. It returns EngineUnknown for other words.
func EngineOf(label string) EngineType {
	for i, e := range engines[1:] {
		if e.label == label || slices.Contains(e.other, label) {
			return EngineType(i + 1)
		}
	}
	return EngineUnknown
}

// String returns the label value of the engine type, "unknown" for the zero
// value.
func (e EngineType) String() string { return engines[e.known()].label }

// VersionPage returns the path of the HTTP request that an engine of the type answers with its version, and
// whether the answer costs the engine more than a few lines of text.
func (e EngineType) VersionPage() (path string, costly bool) {
	row := &engines[e.known()]
	return row.version, row.costly
}

// known returns e, or EngineUnknown if it is not one of the constants.
func (e EngineType) known() EngineType {
	if int(e) < len(engines) {
		return e
	}
	return EngineUnknown
}

// Spec is one endpoint as found by discovery. Address identifies it.
type Spec struct {
	Name      string
	Namespace string
	Cluster   string         // name of the remote cluster; "" for a local endpoint
	Host      string         // as configured: host name or IP address
	Addr      netip.AddrPort // resolved
	Labels    map[string]string
	Rank      int      // data-parallel rank behind this address
	Models    []string // models it serves, if discovery provides them
	Events    Events   // where its KV events are published
	Metrics   string   // metrics URL; "" means http://ip:port/metrics
	// Instance distinguishes incarnations of the engine at an address, for example by pod UID and
	// restart count; "" if discovery cannot. A new incarnation starts with empty state.
	Instance string
}

// Events describes where an endpoint publishes its KV-cache events. The zero value means that
// discovery found none.
type Events struct {
	Port       int    // PUB socket of rank 0; rank r uses Port+r
	ReplayPort int    // ROUTER socket of rank 0, 0: none
	Topic      string // subscription prefix, "" for all
	Ranks      int    // data-parallel ranks that publish, at least 1 if Port is set
	Host       string // "" means the endpoint's own address
	Inbound    bool   // the engine connects to the picker; Port and Host are unused
}

// IsRemote reports whether the endpoint is in another cluster.
func (s *Spec) IsRemote() bool { return s.Cluster != "" }

// Equal reports whether two specs are identical.
func (s Spec) Equal(o Spec) bool {
	if s.Name != o.Name || s.Namespace != o.Namespace || s.Cluster != o.Cluster || s.Host != o.Host || s.Addr != o.Addr ||
		s.Rank != o.Rank || s.Instance != o.Instance || s.Events != o.Events || s.Metrics != o.Metrics || len(s.Labels) != len(o.Labels) {
		return false
	}
	for k, v := range s.Labels {
		if w, ok := o.Labels[k]; !ok || w != v {
			return false
		}
	}
	return slices.Equal(s.Models, o.Models)
}

// Endpoint is one ip:port that serves requests. The data from discovery is immutable. Gauges, load
// and learned constants change and are safe for concurrent use. When discovery changes a label, a
// new Endpoint with the same ID and the same counters replaces it. When the engine restarts, a new
// Endpoint with the same ID and no load does: see Pool.Renew.
type Endpoint struct {
	Spec
	ID           block.EndpointID
	Address      string // ip:port, IPv6 in brackets
	Role         Role
	Engine       EngineType // from the label; Gauges.Engine is the detected one
	InRemoteZone bool       // in a zone other than this replica's, if both are known
	Revision     string     // value of the first of PoolOptions.RevisionLabels that is set; "": unknown

	labels []label // sorted by name
	place  uint64  // hash of the address, for tables
	levels [len(Levels)]uint64
	mark   *Mark
	*counters
	*life
}

type label struct{ name, value string }

// counters is the mutable state of an endpoint that survives engine restarts.
type counters struct {
	gauges gaugeCell
	slots  fit.Slots
	cost   costCell
	// latency and forecast compare the constants with observed times.
	latency  latencyCell
	forecast forecastCell
	places   atomic.Int64 // maximum number of requests; 0: no limit
	models   modelCell

	mark *Mark // nil outside of a pool
}

// life is the request state of one incarnation of the engine.
type life struct {
	began  time.Time // zero: before the endpoint was listed
	book   bookCell
	health healthCell

	adapters adapterCell

	mark *Mark // nil outside of a pool
}

func (p *Pool) makeEndpoint(spec Spec, id block.EndpointID, c *counters, l *life) *Endpoint {
	ep := &Endpoint{
		Spec: spec, ID: id, Address: spec.Addr.String(),
		Role: RoleOf(spec.Labels[LabelRole]), Engine: EngineOf(cmp.Or(spec.Labels[LabelEngine], spec.Labels[LabelEngineAlt])), counters: c, life: l,
		place: placeOf(spec.Addr.String()), levels: levelsOf(spec.Labels),
	}
	for k, v := range spec.Labels {
		ep.labels = append(ep.labels, label{k, v})
	}
	slices.SortFunc(ep.labels, func(a, b label) int { return strings.Compare(a.name, b.name) })
	for _, name := range p.opts.RevisionLabels {
		if ep.Revision = spec.Labels[name]; ep.Revision != "" {
			break
		}
	}
	ep.mark = p.markOf(int(id))
	ep.mark.bind(c, l)
	at := ep.levels[LevelZone]
	ep.InRemoteZone = p.zone > noName && at > noName && at != p.zone
	return ep
}

// Label returns the value of a label, "" and false if not set. It does not allocate.
func (e *Endpoint) Label(name string) (string, bool) {
	for i := range e.labels {
		if e.labels[i].name == name {
			return e.labels[i].value, true
		}
	}
	return "", false
}

// Gauges returns the last sample of the engine's metrics. At is zero if there is none.
func (e *Endpoint) Gauges() Gauges { return *e.gauges.get() }

// BlockSize returns the tokens per KV block, 0 if unknown.
func (e *Endpoint) BlockSize() int { return e.gauges.get().BlockSize }

// SetGauges stores a sample.
func (e *Endpoint) SetGauges(g Gauges) {
	e.slots.Observe(g.At, g.Running, g.Waiting, g.Ranks, e.book.local.prefill.Load()+e.book.remote.prefill.Load())
	e.gauges.store(g)
	if g.LoRA != nil {
		for _, name := range g.LoRA.Running {
			e.adapters.use(ModelKey(name), g.At.UnixNano())
		}
	}
	e.mark.changed()
}

// GaugeAge returns the age of the sample at now, and false if there is none.
func (e *Endpoint) GaugeAge(now time.Time) (time.Duration, bool) {
	at := e.gauges.get().At
	if at.IsZero() {
		return 0, false
	}
	return time.Duration(now.UnixNano() - at.UnixNano()), true
}
