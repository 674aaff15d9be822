package translate

import (
	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// maxGroups bounds the cache groups of a stream. The index stores a group in a byte and reserves
// the last value.
const maxGroups = block.GroupRules

// repeatRules is the number of batches after which the rules are sent again, for readers that lost
// them with the source's data.
const repeatRules = 256

// role is the use of a cache group in the index.
type role uint8

const (
	roleUnknown role = iota // nothing stored since the translator started: removals concern earlier data
	roleBase                // its blocks form the chains
	roleRuled               // its blocks are marks on the base's chains
	roleNone                // nothing certain is known
	roleApart               // irrelevant to prompt reuse
)

// groups is the state of a stream's KV-cache groups as learned from stores. Removals have only a
// group's number.
type groups struct {
	list       []group
	base       int                // the group that forms the chains, -1 while unknown
	size       uint32             // tokens per block of the base, the largest seen
	grown      bool               // larger blocks than the stored ones have arrived
	first      []block.EngineHash // stored base blocks that may turn out to be partial entries
	settled    bool               // first has overflowed
	uneven     bool               // some names may not be block ends of the base
	sparse     bool               // the base has a window or states: the stream has no full attention
	ruled      int                // groups with a rule
	over       bool               // more groups than the index supports
	due        bool               // rules must be sent
	sinceRules int                // batches since rules were sent
}

type group struct {
	role   role
	window uint32
	size   uint32 // tokens per block, the largest seen; entries can be smaller
	rule   block.Rule
	peeks  int     // stores of pieces with one piece too many
	pieces *pieces // of a group with smaller blocks than the base; nil for others
}

// class is the relevance of a kv_cache_spec_kind to prefixes.
type class uint8

const (
	classUnknown class = iota
	classNone          // irrelevant
	classFull          // every block is needed
	classPart          // some blocks are needed: a window, a chunk, a state
)

func classOf(kind []byte) class {
	switch string(kind) {
	case "full_attention", "mla_attention", "sink_full_attention":
		return classFull
	case "sliding_window", "sliding_window_mla", "chunked_local_attention", "mamba":
		return classPart
	case "encoder_only_attention", "cross_attention":
		return classNone
	}
	return classUnknown
}

// choose selects the base group from a batch's stores: the lowest with full attention, otherwise
// the lowest with partial attention, all of whose blocks then count as needed.
func (g *groups) choose(events []decode.Event) {
	best, full := -1, false
	for i := range events {
		e := &events[i]
		if e.Kind != decode.BlockStored || len(e.SpecKind) == 0 || int(e.Group) >= maxGroups {
			continue
		}
		c, n := classOf(e.SpecKind), int(max(e.Group, 0))
		isFull := c == classFull
		if (isFull || c == classPart) && (best < 0 || isFull && !full || isFull == full && n < best) {
			best, full = n, isFull
		}
	}
	if best < 0 || best == g.base || g.base >= 0 && !full {
		return
	}
	if g.base >= 0 {
		g.list[g.base].role = roleUnknown // its next store sets a rule
		g.uneven = true
	}
	g.sparse, g.size = !full, 0
	g.start(best)
	for i := range events { // other groups' block sizes are compared with the base's
		if e := &events[i]; e.Kind == decode.BlockStored && max(e.Group, 0) == int32(best) && len(e.SpecKind) > 0 {
			g.sized(e.BlockSize)
		}
	}
}

// sized records the block size of the base. Partial entries are smaller and may arrive before the
// first block.
func (g *groups) sized(size uint32) {
	if g.size > 0 && size > g.size {
		g.grown = true
	}
	g.size = max(g.size, size)
}

// start makes group n the base.
func (g *groups) start(n int) {
	g.grow(n)
	g.base, g.list[n].role = n, roleBase
}

func (g *groups) grow(n int) {
	for len(g.list) <= n {
		g.list = append(g.list, group{})
	}
}

// of returns the role of an event's group, and updates it from stores.
func (g *groups) of(e *decode.Event) role {
	n := int(max(e.Group, 0))
	if n >= maxGroups {
		return roleNone
	}
	if len(e.SpecKind) > 0 && e.Kind == decode.BlockStored {
		g.learn(n, e)
	}
	if n < len(g.list) && g.list[n].role != roleUnknown {
		return g.list[n].role
	}
	if n == 0 && g.base < 0 {
		if e.Kind == decode.BlockStored {
			g.start(0)
		}
		return roleBase
	}
	if e.Kind == decode.BlockRemoved {
		return roleUnknown
	}
	g.grow(n)
	g.list[n].role = roleNone
	return roleNone
}

// learn records the properties of group n from a store.
func (g *groups) learn(n int, e *decode.Event) {
	g.grow(n)
	l := &g.list[n]
	if l.role == roleBase {
		g.sized(e.BlockSize)
		return
	}
	if classOf(e.SpecKind) == classNone {
		l.role = roleApart
		return
	}
	if l.role == roleRuled && l.window == e.Window && l.size >= e.BlockSize && l.rule.Kind == g.kind(e, l) {
		return
	}
	first := l.role != roleRuled
	if first {
		if g.ruled == block.MaxRules {
			l.role, g.over = roleNone, true
			return
		}
		g.ruled++
	}
	if first && l.size == 0 && e.BlockSize < g.size && classOf(e.SpecKind) != classUnknown && string(e.SpecKind) != "mamba" {
		l.pieces = newPieces(e.BlockSize, g.size, e.Window)
	}
	g.rule(n, e, l)
}

// rule sets the rule of group n from a store.
func (g *groups) rule(n int, e *decode.Event, l *group) {
	if l.pieces != nil && l.role == roleRuled && (l.window != e.Window || l.size != e.BlockSize) {
		g.uneven = true
	}
	l.role, l.window, l.size = roleRuled, e.Window, max(l.size, e.BlockSize)
	rule := block.Rule{Group: uint8(n), Kind: g.kind(e, l), Size: max(l.size, 1)}
	switch {
	case rule.Kind == block.RuleNever:
	case l.pieces != nil:
		rule = l.pieces.rule(n, g.size, l.window)
	case rule.Kind == block.RuleWindow:
		rule.Need = blocksOf(l.window, l.size) * l.size
	}
	g.due = g.due || rule != l.rule
	l.rule = rule
}

// kind returns the rule kind of a group other than the base. Events do not contain the chunk size
// of local-chunk attention, so only blocks held from the start are certain.
func (g *groups) kind(e *decode.Event, l *group) block.RuleKind {
	size := max(l.size, e.BlockSize)
	switch {
	case g.over, l.pieces != nil && g.uneven:
		return block.RuleNever
	case l.pieces != nil:
		return l.pieces.rule(0, g.size, e.Window).Kind
	}
	switch string(e.SpecKind) {
	case "mamba":
		return block.RuleState
	case "sliding_window", "sliding_window_mla":
		if e.Window > 0 && size >= g.size {
			return block.RuleWindow
		}
	case "chunked_local_attention", "full_attention", "mla_attention", "sink_full_attention":
		if size >= g.size {
			return block.RuleAll
		}
	}
	return block.RuleNever
}

// ruled translates the events of groups with rules, after the base's events. Groups are counted
// separately, and their blocks have the base's names.
func (t *Translator) ruled(events []decode.Event) {
	t.reportRules()
	for i := range events {
		e := &events[i]
		if e.Kind != decode.BlockStored && e.Kind != decode.BlockRemoved || len(e.Hashes) == 0 {
			continue
		}
		switch t.groups.of(e) {
		case roleRuled:
		case roleBase:
			if e.Kind == decode.BlockStored && t.suspects > 0 {
				t.markStored(e)
			}
			continue
		default:
			continue
		}
		tier, ok := t.admit(e)
		switch {
		case !ok:
		case t.pages != nil || t.groups.list[groupOf(e)].rule.Kind == block.RuleNever:
			t.stats.Skipped[SkipGroup]++
		case t.groups.list[groupOf(e)].pieces != nil:
			t.pieces(e, &t.groups.list[groupOf(e)], tier)
		case e.Kind == decode.BlockRemoved:
			t.stats.Removed += uint64(len(e.Hashes))
			t.list(block.OpRemove, tier, groupOf(e), e.Hashes)
		default:
			t.mark(e, tier)
		}
	}
}

// reportRules starts a delta with the groups' rules if they are due.
func (t *Translator) reportRules() {
	g := &t.groups
	if g.sinceRules++; !g.due && g.sinceRules < repeatRules {
		return
	}
	g.due, g.sinceRules = false, 0
	first := len(t.out.Hashes)
	for i := range g.list {
		if l := &g.list[i]; l.role == roleRuled {
			rule := l.rule
			if t.pages != nil {
				rule.Kind = block.RuleNever
			}
			t.out.Hashes = append(t.out.Hashes, rule.Word())
		}
	}
	if n := len(t.out.Hashes) - first; n > 0 {
		t.out.Ops = append(t.out.Ops, block.Op{Kind: block.OpMove, Group: block.GroupRules, First: uint32(first), N: uint32(n)})
	}
}

// mark stores an event of a group with a rule. Most of its blocks are known from the base. Unknown
// ones are placed if the event has a token for each position, otherwise skipped.
func (t *Translator) mark(e *decode.Event, tier block.Tier) {
	dense := len(e.Tokens) > 0 && uint64(len(e.Tokens)) == uint64(len(e.Hashes))*uint64(e.BlockSize)
	if dense && !e.HasParent && t.awaits(true) && t.markAgain(e, tier) {
		return
	}
	known := t.known[:0]
	for _, h := range e.Hashes {
		if _, ok := t.lookup(h); ok {
			known = append(known, h)
		}
	}
	t.known = known[:0]
	if len(known) < len(e.Hashes) && dense && e.BlockSize == t.groups.size && !selfParent(e) {
		if from, root, ok := t.parent(e); ok {
			t.store(e, tier, from, root)
			return
		}
	}
	if len(known) == 0 {
		return
	}
	t.stats.Moved += uint64(len(known))
	t.list(block.OpMove, tier, groupOf(e), known)
}

// markAgain handles a requested report. For a group with a window it names blocks that are not
// held; only the blocks that the rule needs are certain.
func (t *Translator) markAgain(e *decode.Event, tier block.Tier) bool {
	t.text = t.textOf(t.text[:0], e)
	if !t.again(e, t.root(e), true) {
		return false
	}
	rule, from := t.groups.list[groupOf(e)].rule, 0
	switch rule.Kind {
	case block.RuleWindow:
		from = max(0, len(e.Hashes)-int(rule.Need/e.BlockSize))
	case block.RuleState:
		from = len(e.Hashes) - 1
	}
	tail := *e
	tail.Lookahead = nil
	key, root := t.root(e), true
	if from > 0 {
		var ok bool
		if key, ok = t.lookup(e.Hashes[from-1]); !ok || e.Lookahead != nil {
			return true
		}
		root, tail.HasParent, tail.Parent = false, true, e.Hashes[from-1]
		tail.Hashes, tail.Tokens = e.Hashes[from:], e.Tokens[from*int(e.BlockSize):]
		tail.Extra = extraFrom(e.Extra, from, len(e.Hashes))
	}
	t.store(&tail, tier, key, root)
	blocks := t.out.Blocks[len(t.out.Blocks)-len(tail.Hashes):]
	for i := range blocks {
		blocks[i].Flags |= block.FlagAgain
	}
	return true
}
