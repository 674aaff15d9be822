package vocab

import (
	"github.com/valyala/fastjson"
	"golang.org/x/text/unicode/norm"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// pipeline reads normalizer, pre_tokenizer and decoder. A prefix that is not empty stands
// for the first two of a SentencePiece file.
func (l *jsonLoader) pipeline(root *fastjson.Value, prefix string) {
	pre, dec := field(root, "pre_tokenizer"), field(root, "decoder")
	switch {
	case hasType(pre, "ByteLevel", 0) || hasType(dec, "ByteLevel", 0):
		l.v.mode = ModeByteLevel
	case hasType(pre, "Metaspace", 0) || hasType(dec, "Metaspace", 0) || hasType(dec, "ByteFallback", 0) ||
		boolean(l.model, "byte_fallback"):
		l.v.mode = ModeSPM
		l.v.norm.spm = true
	}
	l.normalizer(field(root, "normalizer"), 0)
	l.preTokenizer(pre, 0)
	if prefix == "" || l.v.mode != ModeSPM {
		return
	}
	rule := prefixRules[prefix]
	if len(l.v.norm.steps) > 0 || l.v.norm.prefix != rule || l.split != nil {
		l.note("a space is put before texts as its tokenizer class does (transformers 5: %s), not as the file says, which engines with transformers 4 follow", prefix)
	}
	l.v.norm, l.split, l.splitUnknown = normalizer{prefix: rule, spm: true}, nil, false
}

// prefixRules maps the values of Metaspace's prepend_scheme to rules.
var prefixRules = map[string]prefixRule{"first": prefixFirst, "always": prefixAlways, "never": prefixNever}

// maxNesting bounds how deep sequences of pipeline parts may nest.
const maxNesting = 4

// hasType reports whether v, or a part of a sequence, has the given type.
func hasType(v *fastjson.Value, want string, depth int) bool {
	if v == nil || depth > maxNesting {
		return false
	}
	if str(v, "type") == want {
		return true
	}
	for _, part := range members(v) {
		if hasType(part, want, depth+1) {
			return true
		}
	}
	return false
}

// members returns the members of a Sequence of any kind.
func members(v *fastjson.Value) []*fastjson.Value {
	for _, key := range []string{"normalizers", "pretokenizers", "decoders", "processors"} {
		if f := field(v, key); f != nil && f.Type() == fastjson.TypeArray {
			return f.GetArray()
		}
	}
	return nil
}

var normalForms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

func (l *jsonLoader) normalizer(v *fastjson.Value, depth int) {
	if v == nil || depth > maxNesting {
		return
	}
	typ := str(v, "type")
	if form, ok := normalForms[typ]; ok {
		l.step(step{kind: stepForm, form: form})
		return
	}
	switch typ {
	case "Sequence":
		for _, part := range members(v) {
			l.normalizer(part, depth+1)
		}
	case "Prepend":
		l.step(step{kind: stepPrepend, new: str(v, "prepend")})
	case "Replace":
		pattern := field(v, "pattern")
		if re := str(pattern, "Regex"); re != "" {
			l.note("normalizer replaces the regular expression %q: not applied", re)
			return
		}
		l.step(step{kind: stepReplace, old: str(pattern, "String"), new: str(v, "content")})
	case "Lowercase":
		l.step(step{kind: stepLower})
	case "Strip":
		l.step(step{kind: stepStrip, left: boolean(v, "strip_left"), right: boolean(v, "strip_right")})
	case "":
	default:
		l.note("normalizer %s: not applied", typ)
		l.loses("normalizer " + typ)
	}
}

// loses records that tokens do not represent all of their text.
func (l *jsonLoader) loses(what string) {
	if l.v.lossy == "" {
		l.v.lossy = what
	}
}

// dropping are pre-tokenizers that leave characters out.
var dropping = map[string]bool{"Whitespace": true, "WhitespaceSplit": true, "BertPreTokenizer": true, "CharDelimiterSplit": true}

func (l *jsonLoader) step(s step) { l.v.norm.steps = append(l.v.norm.steps, s) }

func (l *jsonLoader) preTokenizer(v *fastjson.Value, depth int) {
	if v == nil || depth > maxNesting {
		return
	}
	switch typ := str(v, "type"); typ {
	case "Sequence":
		l.preSequence(members(v), depth)
	case "ByteLevel":
		if boolean(v, "add_prefix_space") {
			l.v.norm.prefix = prefixAlways
		}
		if f := field(v, "use_regex"); f == nil || f.Type() == fastjson.TypeTrue {
			l.setSplit(split.Find(split.GPT2))
		}
	case "Metaspace":
		rule, named := prefixRules[str(v, "prepend_scheme")]
		if f := field(v, "add_prefix_space"); !named && (f == nil || f.Type() == fastjson.TypeTrue) {
			rule = prefixAlways
		}
		l.v.norm.prefix = rule
		if f := field(v, "split"); f == nil || f.Type() == fastjson.TypeTrue {
			l.setSplit(split.EachSpace())
		}
	case "Split":
		l.splitPart(v)
	case "":
	default:
		if dropping[typ] {
			l.loses("pre-tokenizer " + typ)
		}
		l.unknownSplit("pre-tokenizer " + typ)
	}
}

// preSequence reads a sequence; DeepSeek's three splits are one pattern.
func (l *jsonLoader) preSequence(list []*fastjson.Value, depth int) {
	if len(list) >= 3 {
		if p := split.Find(regex(list[0]), regex(list[1]), regex(list[2])); p != nil {
			l.setSplit(p)
			list = list[3:]
		}
	}
	for _, part := range list {
		l.preTokenizer(part, depth+1)
	}
}

func regex(v *fastjson.Value) string { return str(field(v, "pattern"), "Regex") }

func (l *jsonLoader) splitPart(v *fastjson.Value) {
	if s := str(field(v, "pattern"), "String"); s == " " && l.v.mode == ModeSPM {
		return // spaces are U+2581 by then: the split never happens
	}
	re := regex(v)
	p := split.Find(re)
	behaviour := str(v, "behavior")
	if behaviour == "Removed" && !boolean(v, "invert") {
		l.loses("split that removes " + re + str(field(v, "pattern"), "String"))
	}
	keeps := behaviour == "Isolated" || behaviour == "Removed" && boolean(v, "invert")
	if p == nil || !keeps {
		l.unknownSplit("split pattern " + re)
		return
	}
	l.setSplit(p)
}

// setSplit sets the split pattern. Two different patterns are unsupported.
func (l *jsonLoader) setSplit(p *split.Pattern) {
	if l.splitUnknown || l.split != nil && l.split != p {
		l.unknownSplit("a second split pattern, " + p.Name())
		return
	}
	l.split = p
}

// unknownSplit makes Encode unavailable and adds a note with the reason.
func (l *jsonLoader) unknownSplit(what string) {
	l.note("%.200s is not known: no encoding", what)
	l.splitUnknown = true
}

// template reads the tokens that the post-processor adds around a text.
func (l *jsonLoader) template(v *fastjson.Value) {
	if str(v, "type") == "Sequence" {
		for _, part := range members(v) {
			l.template(part)
		}
		return
	}
	if str(v, "type") != "TemplateProcessing" {
		return
	}
	specials := field(v, "special_tokens")
	seen := false
	for _, part := range field(v, "single").GetArray() {
		if field(part, "Sequence") != nil {
			seen = true
			continue
		}
		tok := str(field(part, "SpecialToken"), "id")
		for _, id := range field(field(specials, tok), "ids").GetArray() {
			n, err := id.Int64()
			if err != nil || n < 0 || n >= int64(l.v.Size()) {
				continue
			}
			if seen {
				l.v.eosIDs = append(l.v.eosIDs, uint32(n))
			} else {
				l.v.bosIDs = append(l.v.bosIDs, uint32(n))
			}
		}
	}
}
