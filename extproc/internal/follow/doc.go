// Package follow detects proxies that ignore the picker's choice: it compares the serving endpoints
// with the chosen ones, over windows of responses.
package follow
