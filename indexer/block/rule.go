package block

import "math"

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
func (r Rule) Word() EngineHash {
	size, need := min(r.Size, math.MaxUint16), min(r.Need, math.MaxUint32)
	return EngineHash(uint64(r.Group)<<56 | uint64(r.Kind)<<48 | uint64(size)<<32 | uint64(need))
}

// RuleOf is the rule of a word; false where it is none.
func RuleOf(w EngineHash) (r Rule, ok bool) {
	r = Rule{Group: uint8(w >> 56), Kind: RuleKind(w >> 48), Size: uint32(w>>32) & math.MaxUint16, Need: uint32(w)}
	return r, r.Kind < numRules && r.Size > 0 && r.Group != GroupRules
}

// MaxRules bounds the groups of a source that have rules: each takes a slot.
const MaxRules = 32
