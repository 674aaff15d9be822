package guide

import "testing"

func TestMissingLine(t *testing.T) {
	got := "a 12 b\nready after 0.5s: x\nlast  column 7\n"
	for _, want := range []string{"a 3 b", "ready after 12.7s: x\nlast column 1", "...ready after...\n", "a 1 b\n...\nlast column 2"} {
		if line := Missing(want, got); line != "" {
			t.Errorf("Missing(%q) = %q, want none", want, line)
		}
	}
	for _, want := range []string{"a 0 b", "a 3 c", "last column 1\na 1 b", "ready"} {
		if Missing(want, got) == "" {
			t.Errorf("Missing(%q) found all lines, want one missing", want)
		}
	}
}

func TestParseRejectsStrayComments(t *testing.T) {
	if _, err := Parse("<!-- not run: no engine -->\n\n```sh\nls\n```\n"); err == nil {
		t.Error("Parse() accepts a comment that is not directly before its block")
	}
	list, err := Parse("<!-- background until: ready -->\n```sh\nserve\n```\n\n```text\nready\n```\n")
	if err != nil || len(list) != 1 || list[0].Until != "ready" || list[0].Output != "ready\n" {
		t.Errorf("Parse() = %+v, %v", list, err)
	}
}

func TestParseRemovesIndent(t *testing.T) {
	list, err := Parse("1. Start:\n\n   <!-- background until: ready -->\n   ```sh\n   if a\n     b\n   ```\n\n   ```text\n   ready\n     now\n   ```\n")
	want := Block{Line: 3, Script: "if a\n  b\n", Until: "ready", Output: "ready\n  now\n"}
	if err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("Parse() = %+v, %v, want %+v", list, err, want)
	}
}

func TestRecordedSession(t *testing.T) {
	want := []Shot{{"status --wait", "ready <1 s & \"exact\"\n  two  columns\n"}, {"top", "x\n"}}
	got := Recorded(Record("a session", []Shot{{"status --wait", "ready <1 s & \"exact\"\n\n  two  columns  \n"}, want[1]}))
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("Recorded() = %q, want %q", got, want)
	}
}
