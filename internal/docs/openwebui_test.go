package docs

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestOpenWebUI compares the compose file of Open WebUI with its page: every setting that the page
// explains is in the file, and the address is that of grapevine up.
func TestOpenWebUI(t *testing.T) {
	text, err := os.ReadFile("../../docs/examples/open-webui/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string            `json:"image"`
			NetworkMode string            `json:"network_mode"`
			Restart     string            `json:"restart"`
			Environment map[string]string `json:"environment"`
			Volumes     []string          `json:"volumes"`
		} `json:"services"`
		Volumes map[string]struct{} `json:"volumes"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	s := file.Services["open-webui"]
	if !strings.HasPrefix(s.Image, "${OPEN_WEBUI_IMAGE:?") || s.NetworkMode != "host" {
		t.Errorf("image %q, network %q", s.Image, s.NetworkMode)
	}
	for name, want := range map[string]string{
		"OPENAI_API_BASE_URL": "http://127.0.0.1:8080/v1", "HOST": "127.0.0.1", "PORT": "3000", "AIOHTTP_CLIENT_TIMEOUT": "600",
		"ENABLE_PERSISTENT_CONFIG": "false", "ENABLE_FORWARD_USER_INFO_HEADERS": "false", "ENABLE_TITLE_GENERATION": "false",
		"ENABLE_TAGS_GENERATION": "false", "ENABLE_FOLLOW_UP_GENERATION": "false", "ENABLE_AUTOCOMPLETE_GENERATION": "false",
	} {
		if s.Environment[name] != want {
			t.Errorf("%s is %q, want %q", name, s.Environment[name], want)
		}
	}
	for _, v := range s.Volumes {
		if name, _, _ := strings.Cut(v, ":"); len(file.Volumes) != 1 || name != "open-webui" {
			t.Errorf("volume %q is not declared", v)
		}
	}
	page, err := os.ReadFile("../../docs/tasks/open-webui.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"OPENAI_API_BASE_URL", "AIOHTTP_CLIENT_TIMEOUT: \"600\"", "ENABLE_PERSISTENT_CONFIG: \"false\"", "0.12.4", "http://127.0.0.1:3000"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not name %s", want)
		}
	}
}
