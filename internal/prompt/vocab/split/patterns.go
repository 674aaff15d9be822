package split

import "strings"

// Supported split patterns, as spelled in tokenizer files. DeepSeek V3 has three, applied in
// sequence.
const (
	GPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	CL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	Qwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	Qwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	o200kWord   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	o200kUpper  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	o200kSuffix = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	o200kRest   = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	O200K       = o200kWord + o200kSuffix + `|` + o200kUpper + o200kSuffix + `|\p{N}{1,3}|` + o200kRest
	Tekken      = o200kWord + `|` + o200kUpper + `|\p{N}|` + o200kRest

	DeepSeek1 = `\p{N}{1,3}`
	DeepSeek2 = "[一-龥\u3040-ゟ゠-ヿ]+"
	DeepSeek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// known maps a pattern's text to its scanner.
var known = map[string]*Pattern{
	GPT2:   patGPT2,
	CL100K: patCL100K,
	Qwen2:  {family: famCL100K, name: "qwen2", digits: 1},
	Qwen35: {family: famCL100K, name: "qwen3.5", digits: 1, marks: true},
	O200K:  patO200K,
	Tekken: patTekken,
}

var deepSeek = &Pattern{family: famDeepSeek, name: "deepseek-v3", digits: 3}

var (
	whole     = &Pattern{family: famNone, name: "none"}
	spaces    = &Pattern{family: famSpaces, name: "spaces"}
	eachSpace = &Pattern{family: famSpaces, name: "each space", digits: 1}

	patGPT2   = &Pattern{family: famGPT2, name: "gpt2"}
	patCL100K = &Pattern{family: famCL100K, name: "cl100k", digits: 3}
	patO200K  = &Pattern{family: famO200K, name: "o200k", digits: 3, contraction: true, slash: true}
	patTekken = &Pattern{family: famO200K, name: "tekken", digits: 1, slash: true}
)

// Whole is the pattern that leaves a text in one piece.
func Whole() *Pattern { return whole }

// EachSpace returns the pattern in which each space is a piece or starts the piece of the following
// word.
func EachSpace() *Pattern { return eachSpace }

// Spaces returns the pattern that splits before each run of spaces after another character, except
// inside the tokens in except.
func Spaces(except [][]byte) *Pattern {
	if len(except) == 0 {
		return spaces
	}
	return &Pattern{family: famSpaces, name: spaces.name, except: except}
}

// named are the patterns that have a name for files that carry none.
var named = map[string]*Pattern{
	"gpt2": patGPT2, "cl100k": patCL100K, "o200k": patO200K, "tekken": patTekken,
	"qwen2": known[Qwen2],
}

// Named returns the pattern of a name: gpt2, cl100k, o200k, tekken or qwen2.
// It returns nil for others.
func Named(name string) *Pattern { return named[name] }

// Find returns the pattern that a tokenizer file spells as these regular
// expressions, applied one after the other; nil when it is unknown. Line ends
// may be written as escapes or as themselves.
func Find(regexes ...string) *Pattern {
	if len(regexes) == 3 && regexes[0] == DeepSeek1 && regexes[1] == DeepSeek2 && plain(regexes[2]) == plain(DeepSeek3) {
		return deepSeek
	}
	if len(regexes) != 1 {
		return nil
	}
	want := plain(regexes[0])
	for text, p := range known {
		if plain(text) == want {
			return p
		}
	}
	return nil
}

// plain writes line ends as escapes.
func plain(regex string) string { return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(regex) }

// Name returns the pattern's common name.
func (p *Pattern) Name() string { return p.name }

// cl100k returns the end of the piece at i.
func (p *Pattern) cl100k(s []byte, i int) int {
	if n := contractionAt(s, i, true); n > 0 {
		return i + n
	}
	letters := clL
	if p.marks {
		letters |= clMark
	}
	cl, n := classAt(s[i:])
	if cl&letters != 0 {
		return runOf(s, i+n, letters)
	}
	if cl == clNumber {
		return runOfMax(s, i+n, p.digits-1, clNumber)
	}
	if cl != clNewline && i+n < len(s) {
		if next, w := classAt(s[i+n:]); next&letters != 0 {
			return runOf(s, i+n+w, letters)
		}
	}
	rest := ^(letters | clNumber | clWhite)
	if end := punctuation(s, i, cl, n, rest); end > i {
		return newlines(s, end, false)
	}
	return whitespace(s, i, true)
}

// punctuation returns the end of " ?[rest]+" at i, or i. The character at i
// has class cl and length n.
func punctuation(s []byte, i int, cl class, n int, rest class) int {
	if cl&rest != 0 {
		return runOf(s, i+n, rest)
	}
	if s[i] == ' ' {
		if end := runOf(s, i+1, rest); end > i+1 {
			return end
		}
	}
	return i
}

// gpt2 returns the end of the piece at i.
func gpt2(s []byte, i int) int {
	if n := contractionAt(s, i, false); n > 0 {
		return i + n
	}
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		start++
	}
	cl, n := classAt(s[start:])
	switch {
	case cl&clL != 0:
		return runOf(s, start+n, clL)
	case cl == clNumber:
		return runOf(s, start+n, clNumber)
	case cl&clWhite == 0:
		return runOf(s, start+n, ^(clL | clNumber | clWhite))
	}
	return whitespace(s, i, false)
}
