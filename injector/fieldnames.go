package injector

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// renameFields renames the fields of a decoded JSON value to the names that type t declares. Templates and annotations
// may write a name in any case, as encoding/json accepts it. A field with the declared name is kept.
func renameFields(v any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for _, item := range v {
				renameFields(item, t.Elem())
			}
		}
	case map[string]any:
		if t.Kind() == reflect.Map {
			for _, item := range v {
				renameFields(item, t.Elem())
			}
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				renameFields(v, f.Type) // an embedded struct
				continue
			}
			if _, ok := v[name]; !ok {
				for _, key := range slices.Sorted(maps.Keys(v)) {
					if strings.EqualFold(key, name) {
						v[name] = v[key]
						delete(v, key)
						break
					}
				}
			}
			if value, ok := v[name]; ok {
				renameFields(value, f.Type)
			}
		}
	}
}
