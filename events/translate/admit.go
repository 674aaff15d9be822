package translate

import (
	"github.com/grapevine-epp/grapevine/indexer"

	"github.com/grapevine-epp/grapevine/events/decode"
)

// maxGroups bounds the cache groups of one stream; the index counts groups in
// a byte.
const maxGroups = 256

// group is what stores have told about one KV-cache group; removals carry
// only its number.
type group uint8

const (
	groupUnknown group = iota
	groupFull          // hits need every block of the prefix
	groupSparse        // sliding window, state space and the like: no prefix index
)

// kindOfGroup classifies kv_cache_spec_kind.
func kindOfGroup(kind []byte) group {
	switch string(kind) {
	case "full_attention", "mla_attention", "sink_full_attention":
		return groupFull
	case "":
		return groupUnknown
	default:
		return groupSparse
	}
}

// groupOf returns the group under which the index counts an event.
func groupOf(e *decode.Event) uint8 {
	if e.Group < 0 {
		return 0
	}
	return uint8(e.Group)
}

// admit decides whether an event concerns the prefix index, and in which tier.
func (t *Translator) admit(e *decode.Event) (indexer.Tier, bool) {
	tier, ok := tierOf(e.Medium)
	skip := NumSkips
	switch {
	case len(e.Ownership) > 0:
		skip = SkipOwnership
	case string(e.Locality) == "REMOTE" && !t.opt.SharedRemote:
		skip = SkipRemote
	case !ok:
		skip = SkipMedium
	case !t.admitGroup(e):
		skip = SkipGroup
	}
	if skip != NumSkips {
		t.stats.Skipped[skip]++
		return tier, false
	}
	return tier, true
}

// admitGroup accepts groups with full attention. Without a kind, group 0 and
// events without a group are taken for such, unless known better.
func (t *Translator) admitGroup(e *decode.Event) bool {
	g := int(max(e.Group, 0))
	if g >= maxGroups {
		return false
	}
	kind := kindOfGroup(e.SpecKind)
	if kind != groupUnknown {
		for len(t.groups) <= g {
			t.groups = append(t.groups, groupUnknown)
		}
		t.groups[g] = kind
		return kind == groupFull
	}
	if g < len(t.groups) && t.groups[g] != groupUnknown {
		return t.groups[g] == groupFull
	}
	return g == 0
}

// tierOf maps the media that engines name to tiers; no medium means GPU.
func tierOf(medium []byte) (indexer.Tier, bool) {
	switch string(medium) {
	case "", "GPU", "gpu", "DEVICE":
		return indexer.TierGPU, true
	case "CPU", "cpu", "CPU_PINNED", "CPU_TIER1":
		return indexer.TierCPU, true
	case "STORAGE", "DISK", "storage", "disk", "NVME", "CPU_TIER2":
		return indexer.TierDisk, true
	case "EXTERNAL", "REMOTE", "external", "remote", "NETWORK", "SHARED":
		return indexer.TierRemote, true
	}
	return 0, false
}
