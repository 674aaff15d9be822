package pd

import "github.com/grapevine-epp/grapevine/picker"

// Always splits every request.
func Always(*picker.Cycle, int32) bool { return true }

// Media splits requests that hold images or sound.
func Media(c *picker.Cycle, _ int32) bool { return c.Request.Prompt.Media > 0 }

// Missing returns a decider that splits requests of at least prompt tokens of
// which the endpoint that serves lacks at least tokens, in any tier.
func Missing(tokens, prompt int) Decider {
	return func(c *picker.Cycle, serving int32) bool {
		return c.Request.InputTokens >= prompt && missing(c, serving) >= tokens
	}
}

// Never splits nothing.
func Never(*picker.Cycle, int32) bool { return false }
