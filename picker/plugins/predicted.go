package plugins

import (
	"maps"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins/predicted"
)

// predictedParams are the parameters of predicted-ttft-scorer.
type predictedParams struct {
	predicted.Params
	TransferParams        // of fetches
	KVSource       string `json:"kvSource,omitempty"` // source of missing blocks: peers or store; "": they are computed
	KVTokens       int    `json:"kvTokens"`           // minimum tokens worth fetching
}

var predictedDefaults = predictedParams{Params: predicted.Defaults, KVTokens: 256, TransferParams: TransferDefaults()}

// fetch returns the fetch settings, or nil if fetching is off.
func (p *predictedParams) fetch() (*predicted.Fetch, error) {
	m, err := p.TransferParams.Model()
	err = plugin.Faults(err,
		plugin.Require(p.KVSource == "" || p.KVSource == "peers" || p.KVSource == "store", "kvSource", "must be peers or store"),
		plugin.Require(p.KVTokens > 0 && p.KVTokens <= 1<<20, "kvTokens", "must be from 1 to 1048576"))
	if p.KVSource == "" || err != nil {
		return nil, err
	}
	return &predicted.Fetch{Model: m, Tokens: p.KVTokens, Store: p.KVSource == "store"}, nil
}

func newPredicted(p predictedParams) (plugin.Plugin, error) {
	weights := map[string]float64{
		"ownWeight": p.OwnWeight, "stallWeight": p.StallWeight, "queueWeight": p.QueueWeight, "arrivalWeight": p.ArrivalWeight,
		"decodeWeight": p.DecodeWeight, "memoryWeight": p.MemoryWeight, "busyWeight": p.BusyWeight, "copyThreshold": p.CopyThreshold, "targetWeight": p.TargetWeight, "alike": p.Alike,
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		if weights[name] < 0 {
			return plugin.Plugin{}, &plugin.ParamError{Field: name, Message: "must not be negative"}
		}
	}
	fetch, err := p.fetch()
	return plugin.Plugin{Scorer: predicted.New(p.Params, fetch)}, plugin.Faults(err,
		plugin.Require(p.ZoneCost >= 0 && p.ZoneCost <= 1, "zoneCost", "must be from 0 to 1 second"),
		plugin.Require(p.MaxShare >= 0 && p.MaxShare <= 1, "maxShare", "must be between 0 and 1"),
		plugin.Require(!p.WarmUp || p.CopyThreshold > 0, "warmUp", "wants copies, and with a copyThreshold of 0 none are made"),
		plugin.Require(p.ChunkTokens > 0 && p.ChunkTokens <= 1<<20, "chunkTokens", "must be from 1 to 1048576"))
}
