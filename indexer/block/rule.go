package block

import "math"

// GroupRules is a group number that no engine uses. An OpMove with this group moves no blocks but
// sets rules, encoded in its hashes (Rule.Word). Versions without rules find no blocks with these
// names, and skip them.
const GroupRules = 255

// Rule defines which blocks of a cache group an engine needs to continue from a position of a
// prompt. A group without a rule needs every block up to there; blocks are counted together over
// all groups without one. With rules, a run ends at a position where all rules are satisfied.
type Rule struct {
	Group uint8
	Kind  RuleKind
	Size  uint32 // tokens of a block of the group, at most 65,535
	Need  uint32 // RuleWindow: required tokens before the position
}

// RuleKind is the type of a Rule.
type RuleKind uint8

// Kinds of rule.
const (
	RuleAll    RuleKind = iota // every block from the start on
	RuleWindow                 // the last Need tokens, or all if there are fewer
	RuleState                  // the block that ends at the position
	RuleNever                  // unknown: no run is certain
	numRules
)

// Word returns the rule encoded as a hash for an operation of GroupRules.
func (r Rule) Word() EngineHash {
	size, need := min(r.Size, math.MaxUint16), min(r.Need, math.MaxUint32)
	return EngineHash(uint64(r.Group)<<56 | uint64(r.Kind)<<48 | uint64(size)<<32 | uint64(need))
}

// RuleOf decodes a rule; false if the word is not one.
func RuleOf(w EngineHash) (r Rule, ok bool) {
	r = Rule{Group: uint8(w >> 56), Kind: RuleKind(w >> 48), Size: uint32(w>>32) & math.MaxUint16, Need: uint32(w)}
	return r, r.Kind < numRules && r.Size > 0 && r.Group != GroupRules
}

// MaxRules bounds the groups of a source that have rules: each takes a slot.
const MaxRules = 32
