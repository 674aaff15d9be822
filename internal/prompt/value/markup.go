package value

import "strings"

// A Markup is the str of the filters safe and escape. What is added to it, or inserted into it, is
// escaped, even though templates of chats are not HTML.

// Markup returns a Markup with this text.
func Markup(s string) Value {
	v := String(s)
	v.markup = true
	return v
}

// IsMarkup reports whether v is a Markup.
func (v Value) IsMarkup() bool { return v.markup }

// As returns v as a Markup if v is a str and of is a Markup. Methods of a Markup return such values.
func (v Value) As(of Value) Value {
	if v.kind == KindString {
		v.markup = v.markup || of.markup
	}
	return v
}

// escapes are the characters that have another form in HTML.
var escapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// Escape returns v as a Markup: unchanged if it is one, otherwise str(v) in the form of HTML.
func Escape(v Value) Value {
	if v.markup {
		return v
	}
	s := v.Text()
	CheckSize(len(s) + 5*strings.Count(s, "&")) // the others are checked below
	s = escapes.Replace(s)
	CheckSize(len(s))
	return Markup(s)
}
