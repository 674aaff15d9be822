package prefix

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Index is the precise index as a Matcher uses it: *indexer.Index, or a model of
// one in a simulation.
type Index interface {
	// Match fills dst with the leading run of q that each endpoint holds.
	Match(q block.Query, endpoints []block.EndpointID, dst []block.Run)
	// BlockEnds appends where the blocks of a run of q end.
	BlockEnds(q block.Query, run block.Run, dst []int32) []int32
	// Overflowed reports whether blocks of an endpoint were left out for want of room.
	Overflowed(id block.EndpointID) bool
}

// Options configure a Matcher. Index and Approx are required.
type Options struct {
	Index  Index
	Approx *approx.Index
	// Models renders prompts; nil when requests come with Exact and ChunkKeys
	// filled by the caller.
	Models *Models

	// Read says how far an endpoint's events are followed, by this replica or a
	// peer; nil: those of every endpoint are, since its cache was empty.
	Read func(block.EndpointID) knowledge.State
	// Streams lists where an endpoint publishes its events; nil: nowhere known.
	Streams func(*endpoint.Endpoint) []events.Stream
	// StreamInfo says what else is known of an endpoint's stream; nil: that blocks have come.
	StreamInfo func(*endpoint.Endpoint) StreamInfo
	// LastEvent is when events of an endpoint were last taken in, in Unix nanoseconds; nil: not
	// known. It takes no lock.
	LastEvent func(block.EndpointID) int64
	// ProbeTopics is told that an engine had more than is known, and that no event has come of it
	// lately: somebody may look at what else its publisher sends. It may be nil.
	ProbeTopics func(*endpoint.Endpoint)
	// Invalidate is told that an endpoint's events do not describe its cache, Confirm
	// that they do. Either may be nil.
	Invalidate func(*endpoint.Endpoint)
	Confirm    func(*endpoint.Endpoint)

	// VerdictChanged is told that the verdict on an endpoint's predictions has changed. It may be
	// nil.
	VerdictChanged func(*endpoint.Endpoint)

	// Speculate is how long a decision counts as cached before events confirm it.
	Speculate time.Duration
	// Wait is how long a request sent to an endpoint waits for its prefill, during
	// which no event can confirm it; nil: not at all.
	Wait func(ep *endpoint.Endpoint, now time.Time) time.Duration
	// Recorded is told of every entry of the approximate index that a decision made;
	// nil: nobody is.
	Recorded func(ep *endpoint.Endpoint, keys []block.Key, at time.Time)
	// Expect is told that a request makes its engine announce the blocks that it reuses
	// of a prompt, and reports whether whoever reads the endpoint's events knows. nil:
	// nobody does.
	Expect func(*endpoint.Endpoint, block.Query) bool
	// Profiles are how the engines render prompts; nil: all as the newest vLLM.
	Profiles *Profiles
	// FullReport lets vLLM engines be asked to announce the blocks that a request
	// reuses, where too little is known of them.
	FullReport bool

	Now        func() time.Time      // nil means steady.Now
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
}

func (o *Options) complete() {
	if o.Now == nil {
		o.Now = monotime.Now
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Read == nil {
		o.Read = func(block.EndpointID) knowledge.State { return knowledge.Exact }
	}
	if o.Streams == nil {
		o.Streams = func(*endpoint.Endpoint) []events.Stream { return nil }
	}
	if o.Expect == nil {
		o.Expect = func(*endpoint.Endpoint, block.Query) bool { return false }
	}
	if o.LastEvent == nil {
		o.LastEvent = func(block.EndpointID) int64 { return 0 }
	}
	if o.StreamInfo == nil {
		o.StreamInfo = func(*endpoint.Endpoint) StreamInfo { return StreamInfo{Blocks: 1, HasMessages: true} }
	}
	if o.ProbeTopics == nil {
		o.ProbeTopics = func(*endpoint.Endpoint) {}
	}
	if o.Invalidate == nil {
		o.Invalidate = func(*endpoint.Endpoint) {}
	}
	if o.VerdictChanged == nil {
		o.VerdictChanged = func(*endpoint.Endpoint) {}
	}
	if o.Confirm == nil {
		o.Confirm = func(*endpoint.Endpoint) {}
	}
	if o.Wait == nil {
		o.Wait = func(*endpoint.Endpoint, time.Time) time.Duration { return 0 }
	}
}

// ModelOptions is one base model.
type ModelOptions struct {
	Name     string   // as in endpoints files and events
	Path     string   // folder with tokenizer.json and tokenizer_config.json; "" matches by token ids and approximately
	Template string   // chat template file, "" for the folder's own
	Aliases  []string // further names that clients use
	Adapters []string // LoRA adapters that clients name as models
}

// ModelsOptions configure Models. Approx is required.
type ModelsOptions struct {
	Hasher block.Hasher
	Approx *approx.Index // cuts the chunks
	// Profiles are how the engines render prompts; nil: all as the newest vLLM.
	Profiles *Profiles
	Prompt   prompt.ModelsOptions
}
