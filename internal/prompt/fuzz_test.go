package prompt

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func testClock() time.Time { return time.Date(2026, 3, 7, 9, 5, 3, 0, time.UTC) }

// FuzzRender renders any body of any kind: no panic, dst untouched on errors,
// output that is UTF-8.
func FuzzRender(f *testing.F) {
	g := newGen(3)
	for range 30 {
		raw, _ := json.Marshal(g.chat())
		f.Add(raw, uint8(KindChat))
	}
	for kind, bodies := range map[Kind][]string{
		KindCompletions: {`{"prompt":"a b"}`, `{"prompt":[[32],[33,34]]}`},
		KindResponses:   {`{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}`},
		KindMessages:    {`{"system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"},{"type":"image"}]}],"tools":[{"name":"f","input_schema":{}}]}`},
		KindGenerate:    {`{"token_ids":[32,33]}`},
	} {
		for _, b := range bodies {
			f.Add([]byte(b), uint8(kind))
		}
	}
	models := []*Model{
		smallModel(f, folderOf(plainTemplate), Options{Now: testClock}),
		smallModel(f, folderOf(partsTemplate), Options{Now: testClock, Tools: ToolsAsWritten}),
		smallModel(f, folderOf(dumpTemplate), Options{Now: testClock}),
	}
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, body []byte, kind uint8) {
		for _, m := range models {
			out, info, err := m.Render(t.Context(), []byte("~"), body, Kind(kind%uint8(numKinds)))
			if err != nil && (string(out) != "~" || ReasonOf(err) == ReasonNone) {
				t.Fatalf("%q and %v", out, err)
			}
			if err == nil && info.Tokens == 0 && !utf8.Valid(out) {
				t.Fatalf("output %q", out)
			}
			for _, end := range info.Ends {
				if end < 0 || end > len(out)-1 {
					t.Fatalf("end %d of %d bytes", end, len(out)-1)
				}
			}
		}
	})
}
