package plugins

import (
	"encoding/json"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Loose is a parameter that is accepted and not looked into.
type Loose = json.RawMessage

// Producer is what the configuration says about the making of request data:
// the index, session keys. The daemon's wiring applies it; zero fields mean
// that nothing was said.
type Producer struct {
	Precise       bool                // named a precise index
	BlockTokens   int                 // tokens per block of the approximate index
	MatchBlocks   int                 // longest match looked for, in blocks
	BlocksPerEP   int                 // blocks remembered per endpoint where its own figures are not known
	FixedCapacity bool                // do not size the index by the endpoint's own figures
	Tiers         *picker.TierWeights // nil means the usual ones
	Sessions      []request.SessionSource
	SessionTable  int    // bindings remembered
	TokenHeader   string // in which answers hand out the endpoint's token; "": none is handed out
}

// IndexParams are those of the approximate prefix index, in all generations.
type IndexParams struct {
	AutoTune               *bool `json:"autoTune,omitempty"`
	BlockSizeTokens        int   `json:"blockSizeTokens,omitempty"`
	BlockSize              int   `json:"blockSize,omitempty"`     // characters, older
	HashBlockSize          int   `json:"hashBlockSize,omitempty"` // characters, oldest
	MaxPrefixBlocksToMatch int   `json:"maxPrefixBlocksToMatch,omitempty"`
	MaxPrefixTokensToMatch int   `json:"maxPrefixTokensToMatch,omitempty"`
	LRUCapacityPerServer   int   `json:"lruCapacityPerServer,omitempty"`
}

func (p IndexParams) check() error {
	return Faults(
		Require(p.BlockSizeTokens >= 0, "blockSizeTokens", "must not be negative"),
		Require(p.BlockSize >= 0, "blockSize", "must not be negative"),
		Require(p.HashBlockSize >= 0, "hashBlockSize", "must not be negative"),
		Require(p.MaxPrefixBlocksToMatch >= 0, "maxPrefixBlocksToMatch", "must not be negative"),
		Require(p.LRUCapacityPerServer >= 0, "lruCapacityPerServer", "must not be negative"))
}

// charactersPerToken converts the older block sizes.
const charactersPerToken = 4

func (p IndexParams) producer(precise bool) *Producer {
	tokens := p.BlockSizeTokens
	if chars := max(p.BlockSize, p.HashBlockSize); tokens == 0 && chars > 0 {
		tokens = max(chars/charactersPerToken, 1)
	}
	return &Producer{
		Precise: precise, BlockTokens: tokens, MatchBlocks: p.MaxPrefixBlocksToMatch,
		BlocksPerEP: p.LRUCapacityPerServer, FixedCapacity: p.AutoTune != nil && !*p.AutoTune,
	}
}

func newApproxProducer(p IndexParams) (Plugin, error) {
	return Plugin{Producer: p.producer(false)}, p.check()
}

func newPreciseProducer(p preciseParams) (Plugin, error) {
	plugin, err := newPreciseScorer(p)
	plugin.Scorer = nil
	return plugin, err
}

type sessionIDParams struct {
	HeaderName string `json:"headerName,omitempty"`
	CookieName string `json:"cookieName,omitempty"`
	LRUSize    int    `json:"lruSize,omitempty"`
	TTL        string `json:"ttl,omitempty"`
}

func newSessionID(p sessionIDParams) (Plugin, error) {
	out := &Producer{SessionTable: p.LRUSize}
	if p.HeaderName != "" || p.CookieName != "" {
		out.Sessions = []request.SessionSource{{Header: lower(p.HeaderName), Cookie: p.CookieName}}
	}
	return Plugin{Producer: out}, Faults(
		Require(p.HeaderName == "" || p.CookieName == "", "cookieName", "and headerName exclude each other"),
		Require(p.LRUSize >= 0, "lruSize", "must not be negative"),
		duration("ttl", p.TTL))
}

// duration checks an optional span of time.
func duration(field, value string) error {
	if value == "" {
		return nil
	}
	d, err := time.ParseDuration(value)
	return Require(err == nil && d >= 0, field, "must be a duration such as 200ms or 2s")
}

// builtIn is the factory of types whose work this program does anyway: any
// parameters are accepted.
func builtIn(p *Params) (Plugin, error) {
	return Plugin{}, p.Read(&map[string]Loose{})
}

// FileDiscovery is where endpoints come from, when the configuration says so.
type FileDiscovery struct {
	Path  string
	Watch bool
}

type fileDiscoveryParams struct {
	Path      string `json:"path"`
	WatchFile bool   `json:"watchFile"`
}

func newFileDiscovery(p fileDiscoveryParams) (Plugin, error) {
	return Plugin{File: &FileDiscovery{p.Path, p.WatchFile}}, Require(p.Path != "", "path", "is needed")
}

// FlowPolicy names a policy of flow control, which orders requests that wait.
type FlowPolicy struct {
	Fairness string // of flows within a priority band
	Ordering string // of requests within a flow
}
