package vocab

import (
	"math/rand/v2"
	"strings"
)

// snippets are the hard parts that hardStrings puts together.
var snippets = []string{
	"The quick brown fox jumps over the lazy dog. ", "It's we'll I'M they'RE you'd o'clock 'tis rock'n'roll ",
	"func main() {\n\tfmt.Println(\"hi\")\n}\n", "    if x != nil {\n        return x[i:j]\n    }\n", "for (int i=0;i<n;++i){a[i]+=b[i];}",
	"1234567890", "3.14159", " 007", "1,000,000", "٣٤٥", "½¾", "Ⅷ", "２０２４",
	"中文测试，你好世界。", "日本語のテキスト、カタカナ", "한국어 텍스트", "हिन्दी में पाठ", "ภาษาไทย", "العربية", "עברית", "ελληνικά", "Русский текст ",
	"🙂", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "é", "e\u0301", "a\u0308\u0323", "\u0301", "ﬁ", "Å", "\u212b", "각", "\u1100\u1161\u11a8",
	" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\n  \n", "\u00a0", "\u3000", "\u2028", "\u200b", "\u0085", "\x00", "\x1c", "\u2003",
	"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "<|begin_of_text|>", "<|eot_id|>", "<|", "|>", "<", "<|im_start", "im_end|>",
	"!!!", "...", "——", "“quoted”", "#include <stdio.h>", "https://example.com/a/b?c=d&e=f#g", "a_b-c.d", "{\"k\": [1, 2, {\"x\": null}]}",
	"\\n\\t", "$$x^2 + y_i$$", "// comment\n", "/* */", "C:\\dir\\file", "ABCdefGHI", "camelCaseHTTPServer", "ǅ", "ʰ", "ª", "\u0345", "𝒳", "𠀀", "\U0001e900",
	"aaaaaaaaaaaaaaaaaaaa", "ſ", "'ſ", "'S", "'Ll", "K", "ß", "İ", "\ufeff", "\ufffd", "\u2581", "▁▁x", "<0x41>", "x\u0338", ">\u0338",
}

// hardStrings generates n texts of up to most snippets. Some texts are truncated at a random
// character.
func hardStrings(seed uint64, n, most int) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		for range 1 + rng.IntN(most) {
			s := []rune(snippets[rng.IntN(len(snippets))])
			if rng.IntN(4) == 0 {
				s = s[rng.IntN(len(s)):]
			}
			if rng.IntN(4) == 0 {
				s = s[:rng.IntN(len(s)+1)]
			}
			b.WriteString(string(s))
		}
		out[i] = b.String()
	}
	return out
}

// randomRunes makes n texts of single characters from all over Unicode.
func randomRunes(seed uint64, n, length int) []string {
	rng := rand.New(rand.NewPCG(seed, 2))
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		for range length {
			r := rune(rng.IntN(0x3000))
			switch rng.IntN(4) {
			case 0:
				r = rune(rng.IntN(0x80))
			case 1:
				r = rune(rng.IntN(0x20000))
			}
			if r < 0xd800 || r > 0xdfff {
				b.WriteRune(r)
			}
		}
		out[i] = b.String()
	}
	return out
}
