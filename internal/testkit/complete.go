package testkit

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Complete sends a short completion to the server at base, such as http://127.0.0.1:8080. It returns
// the problem with the answer, or "".
func Complete(base, model string) (problem string) {
	body := fmt.Sprintf(`{"model":%q,"prompt":"Hello, who are you?","max_tokens":4}`, model)
	resp, err := http.Post(base+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(b), `"choices"`) {
		return fmt.Sprintf("%s %v %s", resp.Status, err, b)
	}
	return ""
}
