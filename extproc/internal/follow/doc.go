// Package follow notices when a proxy does not go where the picker says: it compares who has
// answered with who was named, over windows of answers.
package follow
