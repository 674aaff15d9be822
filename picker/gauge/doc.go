// Package gauge holds the figures of an engine's metrics page that decisions use and people see. They
// are declared once: samples, readings, statuses, explanations and saved statuses all embed [Values].
package gauge
