package jinja

import "testing"

const exprVars = `{"s":"Hello Wörld","e":"","sp":" \t a b  c \n","n":5,"neg":-7,"f":2.5,"big":123456789012345678901234567890,"t":true,"fa":false,"no":null,
"l":[3,1,2],"ls":["b","A","c","a"],"el":[],"d":{"b":1,"a":{"x":[1,{"y":null}]},"items":"own"},"ed":{},
"msgs":[{"role":"system","content":"S"},{"role":"user","content":"U1"},{"role":"assistant","content":"A1","tool_calls":[]},{"role":"user","content":"U2"}],
"html":"<a href='x'>&\"</a>","uni":"e\u0301 \ud83d\ude00 \u4f60\u597d \u00a0x\u2028y","ctl":"a\u0001\u0007\u001f\u007f\b\f\"\\/","nl":"a\nb\n\nc\r\nd\n",
"one":[{"k":1}],"nest":[[1,2],[3,4]],"fl":[1.0,0.1,1e16,1e15,123456789.123,1e-5,0.0001,-0.0,1e100,5e-324],"num":"42","path":"a/b/c"}`

// expressions are rendered by Python and by this package.
var expressions = []string{
	// literals and printing
	"1", "1_000", "0x1F", "1.5", "1e3", "'a' 'b'", `"x\n\t\\\"\u00e9\x41\101\q"`, "true", "False", "none", "None", "[]", "[1,'a',none]", "(1,)", "()", "(1,2)", "{}",
	"{'a':1,'b':[true]}", "{1:2,'1':3}", "s", "no", "t", "f", "l", "d", "ed", "big", "fl", "undefinedthing", "['it\\'s', \"q\\\"\", 'both\\'\\\"']", "[uni, ctl, nl]", "fl[2]", "1.0", "100000000000000000.0", "-0.0",
	// arithmetic
	"1+2*3", "(1+2)*3", "7//2", "-7//2", "7%3", "-7%3", "7/2", "2**10", "2**-1", "2**3**2", "-2**2", "n+f", "n*f", "f//1", "neg%3", "n-neg", "1+2.0", "'a'*3", "3*'ab'", "[1]*2", "l+[9]", "'a'+'b'+s", "(s+'x')+'y'",
	"s~1~none~t~undefinedthing", "n~f", "1 + undefinedthing", "'a'+1", "1+'a'", "'a'+none", "no+'a'", "1/0", "1//0", "1%0", "-n", "+n", "-'a'", "t+1", "1+1~2+3",
	"'%s-%d'%('a',5)", "'%s'%s", "'%.2f'%f", "'%%'%()",
	// comparisons and logic
	"1<2<3", "1<3<2", "1==1.0", "'a'<'b'", "1<'a'", "none==none", "none<1", "t==1", "[1,2]==[1,2]", "[1]<[1,2]", "d==d", "(1,)==[1]", "undefinedthing==undefinedthing", "undefinedthing==none", "1 in l", "9 not in l",
	"'ell' in s", "1 in s", "'b' in d", "'zz' in d", "'x' in undefinedthing", "'x' in no", "not t", "not not t", "t and s", "e or 'dflt'", "e and x", "no or e or 0", "not t == fa", "t and not fa or no",
	"1 if t else 2", "1 if fa", "1 if fa else 2 if t else 3", "('a' if t else 'b') + 'c'", "not 'a' in s", "n > 3 and n < 9", "s == 'Hello Wörld'", "1 != 2", "not undefinedthing", "t is true and fa is false",
	// access
	"d.b", "d['b']", "d.a.x[1].y", "d.zz", "d.zz.y", "d['zz']", "d['items']", "l[0]", "l[-1]", "l[5]", "l[-5]", "one[-1]", "one[-1].k", "s[0]", "s[-1]", "s[7]", "s[99]", "l.0", "msgs[0].role", "msgs[-1]['content']", "undefinedthing.x", "undefinedthing['x']",
	"no.x", "n.x", "s.x", "s['x']", "d.get('b')", "d.get('zz')", "d.get('zz',7)", "d.a.x.0", "msgs[0]['role'] == 'system'", "none['a']", "l['a']",
	// slices
	"l[1:]", "l[:1]", "l[:-1]", "l[::-1]", "l[::2]", "l[-2:]", "l[5:]", "l[1:1]", "l[2:0:-1]", "s[1:4]", "s[::-1]", "s[-5:]", "s[:-6]", "s[6:9]", "(1,2,3)[1:]", "msgs[1:]|length", "s[1:none]", "undefinedthing[1:]", "l[::0]", "n[1:]",
	// filters
	"s|upper", "s|lower", "'hELLO wORLD'|capitalize", "'hello wor-ld (x) o\\'neil'|title", "sp|trim", "'xxaxx'|trim('x')", "undefinedthing|trim", "n|trim", "s|length", "l|length", "d|length", "undefinedthing|length", "n|length", "uni|length",
	"s|replace('l','L')", "s|replace('l','L',1)", "l|join", "l|join(', ')", "ls|join('-')|upper", "msgs|map(attribute='role')|join(',')", "msgs|join('|', attribute='content')", "undefinedthing|default('x')", "no|default('x')", "no|default('x', true)", "e|d('x',boolean=true)",
	"l|first", "l|last", "el|first", "s|first", "l|sort", "ls|sort", "ls|sort(case_sensitive=true)", "l|sort(reverse=true)", "msgs|sort(attribute='content')|map(attribute='content')|list", "l|reverse|list", "s|reverse", "ls|unique|list", "[1,1.0,true,'1']|unique|list",
	"msgs|map(attribute='role')|unique|list", "neg|abs", "num|int", "'x'|int", "'x'|int(9)", "f|int", "'3.7'|int", "'0x1f'|int(base=16)",
	"n|float", "'1.5'|float", "'x'|float", "n|string", "l|string", "html|safe", "d|items|list", "undefinedthing|items|list", "d|dictsort", "{'B':1,'a':2}|dictsort", "{'B':2,'a':1}|dictsort(by='value')", "d|list", "s[:3]|list",
	"msgs|selectattr('role','equalto','user')|list|length", "msgs|selectattr('role','==','user')|map(attribute='content')|list", "msgs|rejectattr('role','in',['user','system'])|list", "msgs|selectattr('tool_calls')|list", "msgs|selectattr('tool_calls','defined')|list|length", "l|select('odd')|list", "l|reject('equalto',1)|list", "[0,1,'',2]|select|list", "ls|map('upper')|list", "ls|map('replace','a','z')|list", "msgs|map(attribute='zz', default='q')|list", "nest|map('first')|list", "nest|map(attribute=1)|list",
	"nl|indent", "nl|indent(2)", "nl|indent(2, true)", "nl|indent(2, blank=true)", "nl|indent('> ')", "e|indent", "'a\n'|indent(3)", "'%s and %s'|format('a', 1)", "s|nosuchfilter", "l|tojson", "d|tojson", "d|tojson(indent=2)", "ed|tojson(indent=2)", "el|tojson(indent=2)", "nest|tojson(indent=4)", "[uni,ctl,html]|tojson", "fl|tojson", "big|tojson", "no|tojson", "t|tojson", "{'b':1,'a':2}|tojson(sort_keys=true)", "d|tojson(separators=(',',':'))", "d|tojson(indent=1,separators=(', ',':'))", "uni|tojson(ensure_ascii=true)", "{1:2, none:3, true:4}|tojson", "undefinedthing|tojson", "(1,2)|tojson",
	// tests
	"s is string", "n is string", "n is number", "f is number", "t is number", "f is float", "n is integer", "t is integer", "t is boolean", "n is boolean", "d is mapping", "l is mapping", "l is sequence", "s is sequence", "d is sequence", "n is sequence", "undefinedthing is sequence", "l is iterable", "n is iterable", "s is iterable",
	"no is none", "undefinedthing is none", "no is defined", "undefinedthing is defined", "undefinedthing is undefined", "d.zz is defined", "d.b is defined and d.b == 1", "d.zz is not defined", "no is not none", "n is odd", "n is even", "s is eq 'x'", "n is eq 5", "n is gt 3", "n is lt(3)", "n is in l", "3 is in l", "t is true", "t is false", "no is false", "s is callable", "s.upper is callable", "d.items is callable", "n is nosuchtest", "s is not string",
	// methods
	"sp.strip()", "sp.lstrip()", "sp.rstrip()", "'xxaxx'.strip('x')", "'\\n\\na\\n'.lstrip('\\n')", "uni.strip()", "'\\x1c\\x85a\\u3000'.strip()", "sp.split()", "s.split('o')", "s.split('o',1)", "s.split(' ')[-1]", "'abc'.split('x')[-1]", "'abc'.split('x')[0]", "path.rsplit('/',1)", "path.split('/', maxsplit=1)", "sp.split(none,1)", "sp.rsplit(none,1)", "'a'.split('')", "nl.splitlines()", "nl.splitlines(true)", "'a\\x0bb\\x1cc\\u2028d\\x85e'.splitlines()",
	"s.startswith('He')", "s.startswith(('x','H'))", "s.endswith('d')", "s.startswith(1)", "s.replace('l','')", "s.replace('l','L',1)", "s.lower()", "s.upper()", "'ß'.upper()", "s.capitalize()", "'they\\'re bill\\'s'.title()", "s.find('o')", "s.rfind('o')", "s.find('zz')", "s.count('l')", "','.join(ls)", "','.join(l)", "s.removeprefix('He')", "s.removesuffix('ld')",
	"d.keys()|list", "d.values()|list", "ed.items()|list", "d.copy()", "d.update({'q':1})", "d.pop('b')", "l.append(1)", "l.count(1)", "s.nosuch()", "nosuch()", "n()", "d.items()|list", "l.sort()",
	"s|wordcount", "s.index('W')", "s.index('zz')", "l.index(1)", "l.index(9)",
	// globals
	"range(3)|list", "range(1,4)|list", "range(5,0,-2)|list", "range(1,4,0)", "range('a')", "dict(a=1,b=2)", "dict({'x':1},y=2)", "namespace(a=1).a", "raise_exception('no')", "strftime_now('%d %b %Y %H:%M:%S %A %B %j %y %p %I %-d %%')",
}

func TestExpressions(t *testing.T) {
	ref := newReference(t)
	for _, e := range expressions {
		compareWith(t, ref, "{{ "+e+" }}", exprVars)
		compareWith(t, ref, "{% if "+e+" %}yes{% else %}no{% endif %}", exprVars)
		compareWith(t, ref, "{% set v = "+e+" %}[{{ v }}]", exprVars)
	}
}
