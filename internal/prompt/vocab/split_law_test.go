package vocab

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// typography is printed prose in several scripts: indents of full-width spaces, no-break spaces
// before punctuation, tabs, combining marks.
var typography = []string{
	"\u3000\u3000天气很好，我们去公园散步。\n\u3000\u3000他说：“好的。”\n\n\u3000\u3000第二天下雨了……\n",
	"　　吾輩は猫である。名前はまだ無い。\n　どこで生れたかとんと見当がつかぬ。「ニャー」と泣いていた。\n",
	"قال الرجل: «السَّلامُ عليكم»، ثم مضى في طريقه.\u00a0\u00a0وكان اليوم حارًّا جدًّا.\n",
	"«\u00a0Bonjour\u00a0!\u00a0» dit-elle\u202f; «\u00a0comment allez-vous\u00a0?\u00a0»\u00a0\u00a0Voilà\u2009: 10\u202f000\u00a0€.\n",
	"func f(x int) int {\n\tif x > 1 {\n\t\treturn x *\tf(x - 1)\n\t}\n\n\n\t\t\treturn 1\n}\n",
	"∀ε>0 ∃δ>0:\u2003|x−a|<δ ⇒ |f(x)−L|<ε.  ∑ᵢ₌₁ⁿ i² = n(n+1)(2n+1)/6\r\n\r\n  x\u0302 ≠ ŷ\n",
	"naïve café résumé 🤷🏽‍♀️ \u200b👩‍👩‍👧‍👦  don't  we'll   It's\t\u00a0 \u3000 mixed \n \n  white  \t space\n",
	"ภาษาไทยไม่มีช่องว่างระหว่างคำ हिन्दी में लिखा हुआ 한국어 문장입니다.\u3000\u3000끝.\n",
}

// TestNoBlockOfACanonicalStreamDeviates checks that no block of a canonical token stream is
// reported as deviating, for any division into blocks, any context and any truncation at the front.
func TestNoBlockOfACanonicalStreamDeviates(t *testing.T) {
	for _, name := range realModels {
		v, _ := realModel(t, name)
		c := v.NewChecker()
		rapid.Check(t, func(t *rapid.T) {
			var b strings.Builder
			for range rapid.IntRange(1, 5).Draw(t, "passages") {
				s := []rune(rapid.SampledFrom(typography).Draw(t, "passage"))
				from := rapid.IntRange(0, len(s)-1).Draw(t, "from")
				b.WriteString(string(s[from : from+rapid.IntRange(0, len(s)-from).Draw(t, "length")]))
			}
			ids := v.Encode(nil, []byte(b.String()))
			if len(ids) < 2 {
				return
			}
			text, _ := v.AppendTokens(nil, ids)
			if again := v.Encode(nil, text); len(again) != len(ids) {
				return // the tokens lose text, so there is no canonical stream
			}
			offs := offsets(v, ids)
			size := rapid.IntRange(1, 20).Draw(t, "block size")
			for at := rapid.IntRange(0, min(size, len(ids)-1)).Draw(t, "first"); at < len(ids); at += size {
				end := min(at+size, len(ids))
				keep := rapid.IntRange(0, 60).Draw(t, "bytes before")
				w := Window{Text: text[max(0, offs[at]-keep):offs[at]], Block: ids[at:end]}
				w.Root = offs[at] <= keep
				if verdict, n := c.Check(w); verdict == Deviates {
					t.Fatalf("token %d of the block %q behind %q is reported to deviate", n, text[offs[at]:offs[end]], w.Text)
				}
			}
		})
	}
}

// A block that deviates is found behind context that is only text, too.
func TestDeviationBehindText(t *testing.T) {
	v, _ := realModel(t, "qwen3")
	c := v.NewChecker()
	var odd []uint32
	for _, r := range "hello" {
		odd = append(odd, v.Encode(nil, []byte(string(r)))...)
	}
	for _, w := range []Window{
		{Text: []byte("well, so "), Block: odd, Final: true},
		{Text: []byte("well, hel"), Block: v.Encode(nil, []byte("lo and so on")), Final: true},
	} {
		if verdict, _ := c.Check(w); verdict != Deviates {
			t.Errorf("%q behind %q: verdict %d, want %d", show(v, w.Block), w.Text, verdict, Deviates)
		}
	}
}
