package translate

import (
	"github.com/grapevine-epp/grapevine/indexer/block"

	"github.com/grapevine-epp/grapevine/events/decode"
)

// groupOf returns the index group of an event.
func groupOf(e *decode.Event) uint8 {
	if e.Group < 0 {
		return 0
	}
	return uint8(e.Group)
}

// admit reports whether an event is relevant to the prefix index, and its tier.
func (t *Translator) admit(e *decode.Event) (block.Tier, bool) {
	tier, ok := tierOf(e.Medium)
	skip := NumSkips
	switch {
	case len(e.Ownership) > 0:
		skip = SkipOwnership
	case string(e.Locality) == "REMOTE" && !t.opt.SharedRemote:
		skip = SkipRemote
	case !ok:
		skip = SkipMedium
	}
	if skip != NumSkips {
		t.stats.Skipped[skip]++
		return tier, false
	}
	return tier, true
}

// tierOf maps engines' media to tiers; no medium means GPU.
func tierOf(medium []byte) (block.Tier, bool) {
	switch string(medium) {
	case "", "GPU", "gpu", "DEVICE":
		return block.TierGPU, true
	case "CPU", "cpu", "CPU_PINNED", "CPU_TIER1":
		return block.TierCPU, true
	case "STORAGE", "DISK", "storage", "disk", "NVME", "CPU_TIER2":
		return block.TierDisk, true
	case "EXTERNAL", "REMOTE", "external", "remote", "NETWORK", "SHARED":
		return block.TierRemote, true
	}
	return 0, false
}
