package prompt

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const (
	prose = "Gossip protocols spread state the way rumours do: each member tells a few others, chosen at random, what it has heard since it last spoke. After a handful of rounds everybody knows, and nobody had to know everybody.\n\n"
	code  = "func (s *Server) Serve(ctx context.Context, l net.Listener) error {\n\tfor {\n\t\tconn, err := l.Accept()\n\t\tif err != nil {\n\t\t\treturn fmt.Errorf(\"accept: %w\", err)\n\t\t}\n\t\tgo s.handle(ctx, conn) // one goroutine per peer\n\t}\n}\n\n"
	han   = "流言协议像谣言一样传播状态：每个成员把最近听到的事情告诉随机挑选的几个同伴，几轮之后人人都知道了。\n"
)

// benchChat makes a chat body of about size bytes with the given number of messages.
func benchChat(size, messages int, tools bool) []byte {
	text := strings.Repeat(prose+code+prose+han, size/700+2)
	msgs := []any{object{"role": "system", "content": "You are a careful engineer."}}
	per := size / messages
	for i := range messages {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		msgs = append(msgs, object{"role": role, "content": strings.ToValidUTF8(text[i:i+per], "")})
	}
	body := object{"model": "m", "messages": msgs, "stream": true}
	if tools {
		var list []any
		for i := range 10 {
			list = append(list, object{"type": "function", "function": object{"name": fmt.Sprintf("tool_%d", i), "description": prose,
				"parameters": object{"type": "object", "properties": object{"path": object{"type": "string", "description": "where"}, "limit": object{"type": "integer"}}, "required": []string{"path"}}}})
		}
		body["tools"] = list
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return raw
}

func BenchmarkRender(b *testing.B) {
	cases := []struct {
		name     string
		size, n  int
		tools    bool
		maxBytes int
	}{
		{"1KB", 700, 3, false, 0}, {"1KB-tools", 700, 3, true, 0}, {"10KB", 10_000, 9, false, 0},
		{"400KB", 390_000, 21, false, 0}, {"400KB-201msgs", 390_000, 201, false, 0}, {"400KB-tools", 390_000, 21, true, 0},
	}
	for _, model := range realModels {
		m, _ := realModel(b, model)
		for _, c := range cases {
			body := benchChat(c.size, c.n, c.tools)
			b.Run(fmt.Sprintf("%s/%s", model, c.name), func(b *testing.B) {
				var dst []byte
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					var err error
					if dst, _, err = m.Render(context.Background(), dst[:0], body, KindChat); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
