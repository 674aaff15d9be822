package vocab

import (
	"strings"
	"testing"
)

const (
	prose = "Gossip protocols spread state the way rumours do: each member tells a few others, chosen at random, what it has heard since it last spoke. After a handful of rounds everybody knows, and nobody had to know everybody.\n\n"
	code  = "func (s *Server) Serve(ctx context.Context, l net.Listener) error {\n\tfor {\n\t\tconn, err := l.Accept()\n\t\tif err != nil {\n\t\t\treturn fmt.Errorf(\"accept: %w\", err)\n\t\t}\n\t\tgo s.handle(ctx, conn) // one goroutine per peer\n\t}\n}\n\n"
	han   = "流言协议像谣言一样传播状态：每个成员把最近听到的事情告诉随机挑选的几个同伴，几轮之后人人都知道了。\n"
)

// mixed is 600 KB of prose, code and Chinese.
var mixed = []byte(strings.Repeat(prose+code+prose+han, 820))

func BenchmarkEncode(b *testing.B) {
	for _, name := range realModels {
		v, _ := realModel(b, name)
		for kind, text := range map[string][]byte{"mixed": mixed, "prose": []byte(strings.Repeat(prose, 2000)), "code": []byte(strings.Repeat(code, 2000)), "han": []byte(strings.Repeat(han, 2000))} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				var ids []uint32
				for b.Loop() {
					ids = v.Encode(ids[:0], text)
				}
			})
		}
	}
}

func BenchmarkAppendTokens(b *testing.B) {
	v, _ := realModel(b, "qwen3")
	ids := v.Encode(nil, mixed)[:100_000]
	dst := make([]byte, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = v.AppendTokens(dst[:0], ids)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/token")
}

func BenchmarkSettled(b *testing.B) {
	v, _ := realModel(b, "qwen3")
	b.SetBytes(int64(len(mixed)))
	for b.Loop() {
		if !v.Settled(mixed) {
			b.Fatal("not settled")
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	_, file := realModel(b, "qwen3")
	for b.Loop() {
		if _, err := Load(file, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
