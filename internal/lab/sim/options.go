package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/blockhash"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// ErrOptions is returned for invalid options.
var ErrOptions = errors.New("sim: bad options")

// Tokenizer is a model's vocabulary and chat template. Implementations are
// safe for concurrent use. *vocab.Vocabulary is one.
type Tokenizer interface {
	// AppendTokens appends the token ids of text and recognises special tokens. With special set,
	// it adds the model's tokens around a prompt (such as a beginning-of-text token).
	AppendTokens(dst []uint32, text []byte, special bool) []uint32
	// AppendText appends the bytes of tokens to dst.
	AppendText(dst []byte, tokens []uint32) []byte
	// Render appends the prompt of a chat, given as the JSON body of a chat
	// completions request.
	Render(dst, body []byte) ([]byte, error)
	// End is the token that ends an answer.
	End() uint32
}

// Options describe one engine.
type Options struct {
	Name  string // shown in logs and in the X-Sim-Engine header; default the address
	Addr  string // host:port of the HTTP server; port 0 picks one; default 127.0.0.1:0
	Model string // served model name; default vocab.Name
	Root  string // source of the model, as the model list reports it; default Model
	// Aliases are further names of the model, Adapters the LoRA adapters loaded at startup, and
	// MaxLoRA the maximum number that run at once (default: no limit).
	Aliases  []string
	Adapters []string
	MaxLoRA  int

	Core  engine.Config // default: the 70B preset with blocks of 16
	Ranks int           // data-parallel ranks, each with its own Core; default 1
	// Speed is model time per real time; default 1, +Inf for steps that take no
	// time.
	Speed float64

	Tokenizer Tokenizer       // default: the built-in vocabulary
	Namer     blockhash.Namer // default: sha256_cbor with vLLM's default seed
	Events    *EventOptions   // nil: no KV events
	PD        *PDOptions      // nil: no part in prefill/decode
	// Sources is the body of GET /kv_event_sources: "list", "sources" (a list
	// under that key), "ranks" (an object keyed by rank), or "" for 404.
	Sources string

	// NonCanonical is the share of answer tokens that are not the ones that the
	// tokenizer would give to their text, as models now and then generate them.
	NonCanonical float64

	// Greedy makes each token of an answer follow from all tokens before it, like a model at
	// temperature 0. Then a prompt that ends with a part of an answer gets the rest of it.
	Greedy bool

	// NoProcessMetrics leaves process_start_time_seconds out of the metrics page, as engines
	// with several API processes do.
	NoProcessMetrics bool
	MaxBody          int64 // larger requests are refused with 413, unread; 0: 256 MiB

	// OnRequest, if not nil, is called with the headers of every inference request. They are
	// read-only.
	OnRequest func(http.Header)
	// OnDone, if not nil, is called with the same headers when the engine works on the request no more.
	OnDone func(http.Header)

	// Idle is the time after which connections without a request are closed; 0: never. uvicorn, which vLLM
	// and SGLang use, has 5 s.
	Idle time.Duration

	StreamInterval int           // tokens per streamed chunk; default 1
	StartDelay     time.Duration // time of not ready (503) after Open and every restart
	Created        int64         // "created" of answers, for reproducible bodies; 0: the time
	Log            *slog.Logger  // default: discards
}

// EventOptions describe an engine's KV-event stream. Rank r binds its ports
// plus r.
type EventOptions struct {
	Addr       string // host:port of rank 0; port 0 picks one; default the HTTP host, port 0
	Replay     string // the same for the replay socket; ReplayOff for none
	Topic      string
	Format     kvstream.Format
	Ring       int
	HWM        int
	ShortReply bool
}

// withDefaults fills in defaults, or returns an error that wraps ErrOptions.
func (o Options) withDefaults() (Options, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Model == "" {
		o.Model = vocab.Name
	}
	if o.Ranks == 0 {
		o.Ranks = 1
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.Tokenizer == nil {
		o.Tokenizer = vocab.New()
	}
	if o.Namer == nil {
		o.Namer = blockhash.NewSHA256CBOR(blockhash.DefaultSeed)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Core.Blocks == 0 {
		size := o.Core.BlockSize
		if size == 0 {
			size = 16
		}
		o.Core.Blocks = engine.KVTokens70B / size
	}
	o.Core.MaxAdapters = o.MaxLoRA
	var err error
	if o.Core, err = o.Core.Check(); err != nil {
		return o, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if o.Ranks < 1 || !(o.Speed > 0) || math.IsNaN(o.Speed) || o.StreamInterval < 0 || o.NonCanonical < 0 || o.NonCanonical > 1 {
		return o, fmt.Errorf("%w: %d ranks, speed %v, stream interval %d, non-canonical share %v",
			ErrOptions, o.Ranks, o.Speed, o.StreamInterval, o.NonCanonical)
	}
	switch o.Sources {
	case "", sourcesList, sourcesKey, sourcesRanks:
	default:
		return o, fmt.Errorf("%w: sources %q", ErrOptions, o.Sources)
	}
	if o.PD != nil {
		o.PD = o.PD.withDefaults()
	}
	if o.Events != nil {
		ev := *o.Events
		o.Events = &ev
	}
	return o, nil
}

// core returns the options of the core of a rank.
func (o *Options) core(rank int, pub *kvstream.Publisher, names func(uint32) string) core.Options {
	c := core.Options{
		Engine: o.Core, Speed: o.Speed, Every: o.StreamInterval, Rank: rank, Events: pub, Names: names, Lease: PDOptions{}.withDefaults().Lease,
	}
	if o.PD != nil {
		c.Lease = o.PD.Lease
	}
	if o.Events != nil {
		c.Format = o.Events.Format
	}
	return c
}
