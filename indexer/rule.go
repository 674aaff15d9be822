package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// condition is a rule of a source with the slot of its group's blocks. Readers see it with the
// source's slot.
type condition struct {
	block.Rule
	slot uint32
}

// slotOf returns the slot for s's blocks of a group.
func (s *source) slotOf(group uint8) uint32 {
	for i := range s.rules {
		if s.rules[i].Group == group {
			return s.rules[i].slot
		}
	}
	return s.slot
}

func (s *source) slotOfKind(kind uint32) uint32 {
	if len(s.rules) == 0 {
		return s.slot
	}
	return s.slotOf(uint8(kind >> 8))
}

// enterRules gives groups of s their rules.
func (x *Index) enterRules(s *source, words []block.EngineHash) {
	for _, w := range words {
		if r, ok := block.RuleOf(w); ok {
			x.enterRule(s, r)
		}
	}
}

func (x *Index) enterRule(s *source, r block.Rule) {
	for i := range s.rules {
		old := &s.rules[i]
		if old.Group != r.Group {
			continue
		}
		if old.Rule != r {
			s.xor ^= imprint(old.Word(), 0, 0) ^ imprint(r.Word(), 0, 0)
			next := append([]condition(nil), s.rules...)
			next[i].Rule = r
			x.showRules(s, next)
		}
		return
	}
	if len(s.rules) == block.MaxRules {
		return
	}
	c := condition{Rule: r, slot: x.newSlot(slotOwner{source: s.name})}
	x.rehome(s, r.Group, c.slot)
	s.xor ^= imprint(r.Word(), 0, 0)
	x.showRules(s, append(s.rules[:len(s.rules):len(s.rules)], c))
}

// showRules has readers go by the rules of s.
func (x *Index) showRules(s *source, rules []condition) {
	s.rules = rules
	x.setSlot(s.slot, slotOwner{source: s.name, live: !s.staged, rules: rules})
}

// rehome moves s's blocks of a group to the group's own slot.
func (x *Index) rehome(s *source, group uint8, slot uint32) {
	s.names.Where(func(e *names.Entry) {
		if uint8(e.Kind()>>8) == group {
			x.hold(slot, e.Node, block.Tier(e.Tier()))
			x.drop(s.slot, x.nodes.at(e.Node), e.Node, block.Tier(e.Tier()))
		}
	})
}
