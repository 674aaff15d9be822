package indexer

import (
	"math"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// GroupRules is a group that no engine has: an OpMove of it moves no blocks but enters
// rules, which its hashes are (Rule.Word). Who does not know of rules finds no blocks of
// these names, and leaves them out.
const GroupRules = 255

// Rule says what an engine needs of one of its cache groups to go on from a position of a
// prompt. A group without a rule needs every block up to there, and blocks are counted
// together over all groups without one. Where some groups have rules, a run ends where all
// of them hold.
type Rule struct {
	Group uint8
	Kind  RuleKind
	Size  uint32 // tokens of a block of the group, at most 65,535
	Need  uint32 // RuleWindow: tokens before the position that must be held
}

// RuleKind is the shape of a Rule.
type RuleKind uint8

// Kinds of rule.
const (
	RuleAll    RuleKind = iota // every block from the start on
	RuleWindow                 // the last Need tokens, or all that there are
	RuleState                  // the block that ends at the position
	RuleNever                  // not known how: no run is certain
	numRules
)

// Word is the rule as the hash of an operation of GroupRules.
func (r Rule) Word() block.EngineHash {
	size, need := min(r.Size, math.MaxUint16), min(r.Need, math.MaxUint32)
	return block.EngineHash(uint64(r.Group)<<56 | uint64(r.Kind)<<48 | uint64(size)<<32 | uint64(need))
}

// ruleOf is the rule of a word; false where it is none.
func ruleOf(w block.EngineHash) (r Rule, ok bool) {
	r = Rule{Group: uint8(w >> 56), Kind: RuleKind(w >> 48), Size: uint32(w>>32) & math.MaxUint16, Need: uint32(w)}
	return r, r.Kind < numRules && r.Size > 0 && r.Group != GroupRules
}

// MaxRules bounds the groups of a source that have rules: each takes a slot.
const MaxRules = 32

// condition is a rule of a source, and the slot under which the blocks of its group are
// held. Readers see conditions with the source's slot.
type condition struct {
	Rule
	slot uint32
}

// slotOf is the slot under which s holds blocks of a group.
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
		if r, ok := ruleOf(w); ok {
			x.enterRule(s, r)
		}
	}
}

func (x *Index) enterRule(s *source, r Rule) {
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
	if len(s.rules) == MaxRules {
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

// rehome moves what s holds of a group to the group's own slot.
func (x *Index) rehome(s *source, group uint8, slot uint32) {
	s.names.Where(func(e *names.Entry) {
		if uint8(e.Kind()>>8) == group {
			x.hold(slot, e.Node, block.Tier(e.Tier()))
			x.drop(s.slot, x.nodes.at(e.Node), e.Node, block.Tier(e.Tier()))
		}
	})
}
