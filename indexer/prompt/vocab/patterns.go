package vocab

import "strings"

// The split patterns that are known, as tokenizer files spell them.
const (
	reGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	reCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	reQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	reQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	o200kWord   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	o200kUpper  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	o200kSuffix = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	o200kRest   = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	reO200K     = o200kWord + o200kSuffix + `|` + o200kUpper + o200kSuffix + `|\p{N}{1,3}|` + o200kRest
	reTekken    = o200kWord + `|` + o200kUpper + `|\p{N}|` + o200kRest

	reDigits3  = `\p{N}{1,3}`
	reCJKKana  = "[一-龥\u3040-ゟ゠-ヿ]+"
	reDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// knownPatterns maps a pattern's text to its scanner.
var knownPatterns = map[string]*pattern{
	reGPT2:     patGPT2,
	reCL100K:   patCL100K,
	reQwen2:    {family: famCL100K, name: "qwen2", digits: 1},
	reQwen35:   {family: famCL100K, name: "qwen3.5", digits: 1, marks: true},
	reO200K:    patO200K,
	reTekken:   patTekken,
	reDeepSeek: {family: famDeepSeek, name: "deepseek-v3", digits: 3},
}

var (
	patNone   = &pattern{family: famNone, name: "none"}
	patSpaces = &pattern{family: famSpaces, name: "spaces"}
	// patEachSpace gives each space a piece of its own or with the word that
	// follows it.
	patEachSpace = &pattern{family: famSpaces, name: "each space", digits: 1}

	patGPT2   = &pattern{family: famGPT2, name: "gpt2"}
	patCL100K = &pattern{family: famCL100K, name: "cl100k", digits: 3}
	patO200K  = &pattern{family: famO200K, name: "o200k", digits: 3, contraction: true, slash: true}
	patTekken = &pattern{family: famO200K, name: "tekken", digits: 1, slash: true}
)

// namedPatterns are the patterns that Options can name for files that carry
// none (tiktoken).
var namedPatterns = map[string]*pattern{
	"gpt2": patGPT2, "cl100k": patCL100K, "o200k": patO200K, "tekken": patTekken,
	"qwen2": knownPatterns[reQwen2],
}

// findPattern returns the scanner of a pattern, nil when it is unknown. Line
// ends may be written as escapes or as themselves.
func findPattern(re string) *pattern {
	norm := strings.NewReplacer("\r", `\r`, "\n", `\n`)
	want := norm.Replace(re)
	for text, p := range knownPatterns {
		if norm.Replace(text) == want {
			return p
		}
	}
	return nil
}

// cl100k returns the end of the piece at i.
func (p *pattern) cl100k(s []byte, i int) int {
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
