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
	Roles // how many sets of them there are
)

// RoleOf reads the value of the role label. No label and an unknown value mean
// that the endpoint serves whole requests and helps no other.
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

// EngineType is the program behind an endpoint.
type EngineType uint8

// Engine types. The zero value means: to be found out from the metrics page.
const (
	EngineUnknown EngineType = iota
	EngineVLLM
	EngineSGLang
	EngineTRTLLM
	EngineTriton
)

// EngineOf reads the value of the engine-type label.
func EngineOf(label string) EngineType {
	switch label {
	case "vllm":
		return EngineVLLM
	case "sglang":
		return EngineSGLang
	case "trtllm-serve", "trtllm":
		return EngineTRTLLM
	case "triton-tensorrt-llm", "triton":
		return EngineTriton
	default:
		return EngineUnknown
	}
}

// String returns the label value of the engine type, "unknown" for the zero
// value.
func (e EngineType) String() string {
	switch e {
	case EngineVLLM:
		return "vllm"
	case EngineSGLang:
		return "sglang"
	case EngineTRTLLM:
		return "trtllm-serve"
	case EngineTriton:
		return "triton-tensorrt-llm"
	default:
		return "unknown"
	}
}

// Spec is one endpoint as discovery finds it. Address identifies it.
type Spec struct {
	Name      string
	Namespace string
	Cluster   string         // of another cluster: its name; "" for this one's
	Host      string         // as configured: name or IP address
	Addr      netip.AddrPort // resolved
	Labels    map[string]string
	Rank      int      // data-parallel rank behind this address
	Models    []string // models it serves, when discovery says so
	Events    Events   // where its KV events come from
	Metrics   string   // metrics URL; "" means http://ip:port/metrics
	// Instance tells one engine behind the address from the next, such as a pod's UID and
	// restart count; "" when discovery does not know. Another life starts with nothing.
	Instance string
}

// Events say where an endpoint publishes its KV-cache events. The zero value
// means that it does not, as far as discovery knows.
type Events struct {
	Port       int    // PUB socket of rank 0; rank r is at Port+r
	ReplayPort int    // ROUTER socket of rank 0, 0 when there is none
	Topic      string // subscription prefix, "" for all
	Ranks      int    // data-parallel ranks that publish, at least 1 when Port is set
	Host       string // "" means the endpoint's own address
	Inbound    bool   // its engine connects to the picker: Port and Host mean nothing
}

// IsRemote reports whether the endpoint is in another cluster.
func (s *Spec) IsRemote() bool { return s.Cluster != "" }

// Equal reports whether two specs say the same.
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

// Endpoint is one ip:port that serves requests. What discovery says is
// immutable; gauges, book and learned constants change underneath and are
// safe for concurrent use. When discovery changes a label, a new Endpoint with
// the same ID and the same counters takes its place; when the engine starts again, one
// with the same ID and an empty book takes it: see Pool.Renew.
type Endpoint struct {
	Spec
	ID           block.EndpointID
	Address      string // ip:port, IPv6 in brackets
	Role         Role
	Engine       EngineType // as labelled; Gauges.Engine has what was seen
	InRemoteZone bool       // in another zone than this replica, as far as both say where they are

	labels []label // sorted by name
	place  uint64  // of the address, for tables
	levels [len(Levels)]uint64
	*counters
	*life
}

type label struct{ name, value string }

// counters are what changes about an endpoint while it lives.
type counters struct {
	gauges gaugeCell
	slots  fit.Slots
	cost   costCell
	places atomic.Int64 // requests that it may have at once; 0: nobody says
	models modelCell
}

// life is what is known of the requests of one life of its engine.
type life struct {
	began  time.Time // zero: before the endpoint was listed
	book   bookCell
	health healthCell
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
	at := ep.levels[LevelZone]
	ep.InRemoteZone = p.zone > noName && at > noName && at != p.zone
	return ep
}

// Label returns the value of a label, "" and false when it is not set. It
// allocates nothing and is cheap enough for filters.
func (e *Endpoint) Label(name string) (string, bool) {
	for i := range e.labels {
		if e.labels[i].name == name {
			return e.labels[i].value, true
		}
	}
	return "", false
}

// Gauges returns the last sample of the engine's own metrics; At is zero when
// there is none.
func (e *Endpoint) Gauges() Gauges { return e.gauges.load() }

// BlockSize returns the tokens of a KV block, 0 when unknown.
func (e *Endpoint) BlockSize() int { return e.gauges.blockSize() }

// SetGauges stores a sample.
func (e *Endpoint) SetGauges(g Gauges) {
	e.slots.Observe(g.At, g.Running, g.Waiting, g.Ranks, e.book.local.prefill.Load()+e.book.remote.prefill.Load())
	e.gauges.store(g)
}

// GaugeAge returns how old the sample is at now, and false when there is none.
func (e *Endpoint) GaugeAge(now time.Time) (time.Duration, bool) {
	at := e.gauges.at.Load()
	if at == 0 {
		return 0, false
	}
	return time.Duration(now.UnixNano() - at), true
}
