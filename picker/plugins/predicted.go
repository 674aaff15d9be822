package plugins

import (
	"maps"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins/predicted"
)

func newPredicted(p predicted.Params) (plugin.Plugin, error) {
	weights := map[string]float64{
		"ownWeight": p.OwnWeight, "stallWeight": p.StallWeight, "queueWeight": p.QueueWeight, "arrivalWeight": p.ArrivalWeight,
		"decodeWeight": p.DecodeWeight, "memoryWeight": p.MemoryWeight, "busyWeight": p.BusyWeight, "copyThreshold": p.CopyThreshold, "targetWeight": p.TargetWeight, "alike": p.Alike,
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		if weights[name] < 0 {
			return plugin.Plugin{}, &plugin.ParamError{Field: name, Message: "must not be negative"}
		}
	}
	return plugin.Plugin{Scorer: predicted.New(p)}, plugin.Faults(
		plugin.Require(p.ZoneCost >= 0 && p.ZoneCost <= 1, "zoneCost", "must be from 0 to 1 second"),
		plugin.Require(p.MaxShare >= 0 && p.MaxShare <= 1, "maxShare", "must be between 0 and 1"),
		plugin.Require(p.ChunkTokens > 0 && p.ChunkTokens <= 1<<20, "chunkTokens", "must be from 1 to 1048576"))
}
