package validation

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/galley/validation/schema"
)

// Result is the content of one file.
type Result struct {
	// Documents are the documents of our kinds and the documents of unknown kind, in the order of the text. Documents
	// of kinds that the control plane does not read are left out.
	Documents []Document

	// Templates are the templates of Pods in documents of other kinds.
	Templates []Template

	// Broken is set if the file as a whole cannot be read: it is not YAML, not UTF-8, or over a limit. Then there are
	// no Documents, and the intended content is unknown.
	Broken *diag.Diagnostic
}

// Findings returns the findings of all documents.
func (r Result) Findings() []diag.Diagnostic {
	var all []diag.Diagnostic
	if r.Broken != nil {
		all = append(all, *r.Broken)
	}
	for _, d := range r.Documents {
		all = append(all, d.Findings...)
	}
	return all
}

// Document is one YAML document, or one item of a List.
type Document struct {
	// Key names the object. Kind is nil if it is unknown which of our kinds the document has. Name is empty if the name
	// or the namespace cannot be read, so that the document may be meant for any object.
	Key kinds.Key

	// Object is nil if a finding is an error.
	Object *kinds.Object

	// Kept is the object without its faults if there is no Object. It is at least as strict as the written object. Kept
	// is nil if there is an Object, or if nothing of the document can be in force.
	Kept *kinds.Object
	// Cut has the paths of the fields that Kept lacks or has a stricter value for, as findings name them.
	Cut []string
	// Closed has the paths of Cut for which Kept has a stricter value.
	Closed []string

	// read returns the object without its faults and without stricter replacements, or nil if nothing can be read. The
	// func is nil if there is an Object, or if the text could not be parsed.
	read func() *kinds.Object

	// Vital reports whether a server must not start with the document as it is if a finding is an error: it is of a
	// security kind, or it may be an object that restricts something but its name or kind is unknown, or nothing of it
	// can be in force.
	Vital bool

	Line, Column int // position of its beginning

	Findings []diag.Diagnostic
}

// Decode reads a file of YAML documents without checking them against CustomResourceDefinitions. See Rules.
func Decode(l limits.Limits, file string, data []byte) Result {
	return Rules{Limits: l}.Decode(file, data)
}

// Decode reads a file of YAML documents. JSON is YAML. File names in positions are as given.
func (r Rules) Decode(file string, data []byte) Result {
	l := r.Limits
	if p, why, fix := unreadable(l, data); why != "" {
		return broken(file, p, "Limit", why, fix)
	}
	d := &decoder{limits: l, file: file, schemas: r.Schemas, review: r.Review,
		namespace: cmp.Or(r.Namespace, metav1.NamespaceDefault), vital: r.Vital}
	d.tree = treeBuilder{maxDepth: l.YAMLDepth, budget: fileValues(len(data)), open: map[*yaml.Node]bool{}}
	docs := yaml.NewDecoder(bytes.NewReader(data))
	for count := 1; ; count++ {
		var doc yaml.Node
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return Result{Documents: d.documents, Templates: d.templates}
		}
		if err != nil {
			p, why := syntaxError(data, err)
			return broken(file, p, "Syntax", why, "until it is mended, the file's last good content stays in force")
		}
		if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" && doc.Content[0].Kind == yaml.ScalarNode {
			continue
		}
		if count > l.FileDocs {
			return broken(file, pos{doc.Content[0].Line, doc.Content[0].Column}, "Limit",
				fmt.Sprintf("the file has more than %d documents", l.FileDocs), "split it into several files")
		}
		d.document(doc.Content[0])
	}
}

func broken(file string, p pos, code, why, fix string) Result {
	return Result{Broken: &diag.Diagnostic{Severity: diag.Error, Code: code, Message: why, Fix: fix, File: file, Line: p.line, Column: p.col}}
}

// unreadable returns why the bytes are not parsed as YAML, if so.
func unreadable(l limits.Limits, data []byte) (p pos, why, fix string) {
	if int64(len(data)) > l.FileSize {
		return pos{1, 1}, fmt.Sprintf("the file is larger than %d bytes", l.FileSize), "split it into several files"
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return position(data, i), "the file holds a NUL byte", "write plain UTF-8 text"
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return position(data, i), "the file is not valid UTF-8", "save it as UTF-8"
		}
		i += n
	}
	all := 0
	for line, n := range limits.YAMLNodes(data) {
		if n > nodeBudget {
			return pos{line, 1}, fmt.Sprintf("the document may hold more than %d values", nodeBudget), "split it into several documents"
		}
		if all += n; all > 2*fileBudget {
			return pos{line, 1}, fmt.Sprintf("the documents of the file may hold more than %d values", 2*fileBudget), "split the file"
		}
	}
	return pos{}, "", ""
}

func position(data []byte, offset int) pos {
	before := data[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return pos{1 + bytes.Count(before, []byte{'\n'}), 1 + utf8.RuneCount(before[start:])}
}

// bisectBytes bounds the files in which the line of a syntax error is searched for. The search parses the file some
// fifteen times.
const bisectBytes = 256 << 10

// syntaxError returns the message of the YAML parser and the line of the error. The parser names the line where the
// enclosing block begins. syntaxError searches for the first line up to which the text already fails in the same way.
func syntaxError(data []byte, err error) (pos, string) {
	line, why := parserMessage(err)
	lines := bytes.SplitAfter(data, []byte{'\n'})
	if len(data) <= bisectBytes {
		low, high := 0, len(lines)
		for low+1 < high {
			mid := (low + high) / 2
			if _, same := parserMessage(parse(bytes.Join(lines[:mid], nil))); same == why {
				high = mid
			} else {
				low = mid
			}
		}
		line = high
	}
	p := pos{max(1, min(line, len(lines))), 1}
	content := lines[p.line-1]
	p.col += len(content) - len(bytes.TrimLeft(content, " "))
	if bytes.HasPrefix(content[p.col-1:], []byte{'\t'}) {
		why += ", and the line begins with a tab where YAML wants spaces"
	}
	return p, why
}

func parse(data []byte) error {
	docs := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		if err := docs.Decode(&doc); err != nil {
			return err
		}
	}
}

func parserMessage(err error) (line int, why string) {
	why = strings.TrimPrefix(err.Error(), "yaml: ")
	if _, scanErr := fmt.Sscanf(why, "line %d:", &line); scanErr == nil {
		_, why, _ = strings.Cut(why, ": ")
	}
	return line, why
}

// decoder reads the documents of one file.
type decoder struct {
	limits    limits.Limits
	schemas   *schema.Set
	file      string
	namespace string // namespace of objects that name none
	vital     []*kinds.Kind
	tree      treeBuilder
	documents []Document
	templates []Template
	stored    bool // the input is one object of an API server: see Object
	review    bool // the input is an object that is about to be stored: see Review
	salvages  bool // an object with errors is reduced to one that can be in force
}

// admission reports whether an API server asks whether to store the object.
func (d *decoder) admission() bool { return d.stored && d.review }

func (d *decoder) document(root *yaml.Node) {
	f := &findings{file: d.file}
	d.tree.dead = false
	d.tree.found = f
	n := d.tree.build(root, "", 1)
	if d.tree.dead {
		d.documents = append(d.documents, Document{Findings: f.finish(""), Vital: d.topRestricts(root), Line: root.Line, Column: root.Column})
		return
	}
	before := len(d.documents)
	d.content(n, f)
	if slices.ContainsFunc(f.list, func(d diag.Diagnostic) bool {
		return d.Code == "DuplicateKey" && (d.Field == "apiVersion" || d.Field == "kind")
	}) { // two objects without a separator, of which the second is unknown
		d.documents = append(d.documents[:before],
			Document{Findings: f.finish(""), Vital: d.topRestricts(root), Line: root.Line, Column: root.Column})
	}
}

// content decodes a document, or an item of a List: a List of its own, or an object.
func (d *decoder) content(n *node, f *findings) {
	if n.shape == mapping && n.str("kind") == "List" && (n.str("apiVersion") == "v1" || n.str("apiVersion") == "") {
		d.list(n, f)
		return
	}
	d.object(n, f)
}

// list handles each item of a v1 List, and of each List within it, as a document. If the List itself has an error, none
// of its items is used. The content of a List without a list of items is unknown: it may restrict something.
func (d *decoder) list(n *node, f *findings) {
	items := n.get("items")
	unknown := items == nil || items.shape != list
	if unknown {
		f.errorAt(n.pos, "items", "MissingField", "add the list of objects", "a List needs items")
	}
	for _, field := range n.fields {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, field.name) {
			f.errorAt(field.pos, field.name, "UnknownField",
				diag.UnknownName(field.name, []string{"metadata", "items"}), "unknown field %q", field.name)
		}
	}
	if f.failed() {
		vital := unknown || items.cutOff() || d.namesRestricting(n)
		d.documents = append(d.documents, Document{Findings: f.finish(""), Vital: vital, Line: n.line, Column: n.col})
		return
	}
	for _, item := range items.items {
		d.content(item, &findings{file: d.file})
	}
}

// topRestricts reports whether a document without a tree names a restricting kind at its top level, or no
// kind.
func (d *decoder) topRestricts(root *yaml.Node) bool {
	named := false
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if value.Alias != nil {
			value = value.Alias
		}
		if key.Value == "kind" {
			if value.Value == "List" || restrictingKind(value.Value, d.vital...) {
				return true
			}
			named = true
		}
	}
	return !named // its kind is unknown
}
