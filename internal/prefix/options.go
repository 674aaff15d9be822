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

// Index is the precise index: *indexer.Index, or its model in a simulation.
type Index interface {
	// Match fills dst with the leading run of q that each endpoint holds.
	Match(q block.Query, endpoints []block.EndpointID, dst []block.Run)
	// BlockEnds appends the block ends of a run of q.
	BlockEnds(q block.Query, run block.Run, dst []int32) []int32
	// Overflowed reports whether blocks of an endpoint were rejected because the index was full.
	Overflowed(id block.EndpointID) bool
}

// Options configures a Matcher. Index and Approx are required.
type Options struct {
	Index  Index
	Approx *approx.Index
	// Models renders prompts; nil if the caller fills in Exact and ChunkKeys.
	Models *Models

	// Read returns the state of an endpoint's events, read by this replica or a peer; nil: all
	// endpoints are followed since their cache was empty.
	Read func(block.EndpointID) knowledge.State
	// Streams lists the event streams of an endpoint; nil: none are known.
	Streams func(*endpoint.Endpoint) []events.Stream
	// StreamInfo returns further data on an endpoint's stream; nil: blocks have arrived.
	StreamInfo func(*endpoint.Endpoint) StreamInfo
	// LastEvent returns the time of an endpoint's last events in Unix nanoseconds; nil: unknown. It
	// takes no lock.
	LastEvent func(block.EndpointID) int64
	// ProbeTopics is called if an engine held more than known and has sent no event recently, to
	// probe for other topics of its publisher. May be nil.
	ProbeTopics func(*endpoint.Endpoint)
	// Invalidate is called if an endpoint's events do not describe its cache, Confirm if they do.
	// Either may be nil.
	Invalidate func(*endpoint.Endpoint)
	Confirm    func(*endpoint.Endpoint)

	// VerdictChanged is called when the verdict on an endpoint's predictions changes. May be nil.
	VerdictChanged func(*endpoint.Endpoint)

	// Speculate is how long a decision counts as cached before events confirm it.
	Speculate time.Duration
	// Wait returns how long a request sent to an endpoint waits for its prefill, during which no
	// event can confirm it; nil: no wait.
	Wait func(ep *endpoint.Endpoint, now time.Time) time.Duration
	// Recorded is called with every approximate index entry created by a decision; may be nil.
	Recorded func(ep *endpoint.Endpoint, keys []block.Key, at time.Time)
	// Expect is called for a request that makes its engine report the reused blocks of a prompt. It
	// returns whether the reader of the endpoint's events has been informed. nil: never.
	Expect func(*endpoint.Endpoint, block.Query) bool
	// Profiles are the rendering profiles of the engines; nil: all as the newest vLLM.
	Profiles *Profiles
	// FullReport allows requesting reuse reports from vLLM engines with incomplete data.
	FullReport bool

	Now        func() time.Time      // nil means the monotonic clock
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
	Aliases  []string // further names used by clients
	Adapters []string // LoRA adapters that clients name as models
}

// ModelsOptions configures Models. Approx is required.
type ModelsOptions struct {
	Hasher block.Hasher
	Approx *approx.Index // cuts the chunks
	// Profiles are the rendering profiles of the engines; nil: all as the newest vLLM.
	Profiles *Profiles
	Prompt   prompt.ModelsOptions
}
