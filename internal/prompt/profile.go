package prompt

import (
	"strconv"
	"strings"
)

// Profile describes how an engine of one kind and version builds a prompt from a body. The zero
// value is the newest supported vLLM. Profiles are compared with ==.
type Profile uint32

// Fact is a difference between engines. A rendering reports the facts on which it depends.
type Fact uint16

// Facts.
const (
	FactHeader   Fact = 1 << iota // whether Claude Code's header line stays in system messages of chats
	FactTexts                     // separator between the text parts of a message
	FactWrap                      // whether templates that take parts receive a string as a part
	FactFormat                    // which templates take parts
	FactMessages                  // separator between the system blocks of an Anthropic body
	FactBlocks                    // conversion of tool results, inline system messages and thinking of an Anthropic body
	FactTools                     // how tool definitions are dumped
	FactHistory                   // members of earlier assistant messages, developer messages
	FactFinal                     // how the final message is continued
	FactSalts                     // blocks of a salted prompt cannot be identified: events carry no salts
	FactGroups                    // blocks of windows or states cannot be identified: events carry no cache groups
)

// Layout of a Profile: the unknown facts, the content rule, and flags.
const (
	unknownBits = 16
	ruleShift   = unknownBits
	ruleMask    = 3 << ruleShift
	keepsHeader = 1 << (ruleShift + 2)
	styleSGLang = 1 << (ruleShift + 3)
)

// contentRule selects the templates that receive content as parts.
type contentRule uint8

const (
	ruleNamespaces contentRule = iota // vLLM since 0.33: aliases in namespaces count
	ruleMacros                        // since 0.30: parameters of macros that receive the content count
	ruleLoops                         // earlier: loops over the content
	ruleSGLang                        // loops over the content of message, msg or m, and any mention of media
	numRules
)

// engineFacts are the facts of one engine type, newest version first, as found in the published
// packages.
type engineFacts struct {
	since   [3]int // first version; the last row applies to all older ones
	rule    contentRule
	header  bool // keeps the header
	unknown Fact
}

var vllmFacts = []engineFacts{
	{since: [3]int{0, 33, 0}, rule: ruleNamespaces},
	{since: [3]int{0, 32, 0}, rule: ruleMacros},
	{since: [3]int{0, 30, 0}, rule: ruleMacros, header: true},
	{since: [3]int{0, 20, 0}, rule: ruleLoops, header: true},
	{since: [3]int{0, 18, 0}, rule: ruleLoops, header: true, unknown: FactGroups},
	{rule: ruleLoops, header: true, unknown: FactGroups | FactSalts},
}

var sglangFacts = []engineFacts{
	{since: [3]int{0, 5, 23}, rule: ruleSGLang, header: true, unknown: FactHistory | FactFinal},
	{rule: ruleSGLang, header: true, unknown: FactHistory | FactFinal | FactTools | FactBlocks},
}

// otherUnknown are the facts that are unknown for TensorRT-LLM and Triton.
const otherUnknown = FactHeader | FactTexts | FactMessages | FactBlocks

// ProfileOf returns the profile of an engine for an engine-type label and a version. An empty label
// is treated as the newest vLLM, an empty version as the engine's newest version. If the version
// cannot be parsed, every fact that differs between versions is unknown.
func ProfileOf(engine, version string) Profile {
	table, style := vllmFacts, Profile(0)
	switch engine {
	case "vllm", "unknown", "":
	case "sglang":
		table, style = sglangFacts, styleSGLang
	default:
		return Profile(otherUnknown)
	}
	v, ok := parseVersion(version)
	for i, f := range table {
		if version != "" && ok && less(v, f.since) {
			continue
		}
		p := style | Profile(f.rule)<<ruleShift | Profile(f.unknown)
		if f.header {
			p |= keepsHeader
		}
		if version != "" && !ok && i == 0 {
			p |= Profile(unreadable(table))
		}
		return p
	}
	return style
}

// unreadable returns the facts in which an engine's versions differ.
func unreadable(table []engineFacts) (out Fact) {
	for _, f := range table[1:] {
		if f.rule != table[0].rule {
			out |= FactFormat
		}
		if f.header != table[0].header {
			out |= FactHeader
		}
		out |= f.unknown
	}
	return out
}

// parseVersion reads the first three numbers of a version, as in 0.33.1rc2.dev5+cpu.
func parseVersion(s string) (v [3]int, ok bool) {
	rest := strings.TrimPrefix(s, "v")
	for i := range v {
		n := 0
		for n < len(rest) && rest[n]-'0' <= 9 {
			n++
		}
		if v[i], _ = strconv.Atoi(rest[:n]); n == 0 {
			return v, i > 1
		}
		if rest = rest[n:]; !strings.HasPrefix(rest, ".") {
			return v, i > 0
		}
		rest = rest[1:]
	}
	return v, true
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func (p Profile) rule() contentRule { return contentRule(p & ruleMask >> ruleShift) }
func (p Profile) sglang() bool      { return p&styleSGLang != 0 }
func (p Profile) strips() bool      { return p&keepsHeader == 0 }

// Unknown reports whether a rendering that depends on these facts is uncertain for engines of the
// profile.
func (p Profile) Unknown(facts Fact) bool { return Fact(p)&facts != 0 }

// Same reports whether a rendering for p that depends on these facts is also valid for q.
func (p Profile) Same(q Profile, facts Fact) bool {
	switch {
	case p == q:
		return true
	case p.sglang() != q.sglang() && facts&^(FactHeader|FactFormat) != 0:
		return false
	case p.strips() != q.strips() && facts&FactHeader != 0:
		return false
	}
	return p.rule() == q.rule() || facts&FactFormat == 0
}
