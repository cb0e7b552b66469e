package faultnet

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fillErrors puts code into each place that resp has for it: at the top, and in
// one element for each topic, partition, group, transaction, coordinator or
// resource that req names.
//
// It goes by the names of kmsg's fields, which are the same in requests and
// responses, so that it holds for every key and version.
func fillErrors(req kmsg.Request, resp kmsg.Response, code int16) {
	q, r := structOf(req), structOf(resp)
	if !q.IsValid() || !r.IsValid() {
		return
	}
	items := 0
	if !topOnly(resp.Key(), code) {
		items = fillElements(q, r, code)
	}
	if items == 0 || !elementsFirst(resp.Key()) {
		setInt16(r, "ErrorCode", code)
	}
}

// elementsFirst tells the keys whose top-level code is about the session or the
// connection: a client that finds one there looks no further.
func elementsFirst(key int16) bool {
	switch key {
	case fetchKey, metadataKey, shareFetchKey, shareAcknowledgeKey:
		return true
	}
	return false
}

// topOnly tells the codes that those keys carry at the top.
func topOnly(key, code int16) bool {
	switch code {
	case 70, 71, 106, // fetch session: not found, epoch, topic id
		122, 123, 133, // share session: not found, epoch, limit
		25, 30, 35: // unknown member, group authorization, unsupported version
		return elementsFirst(key)
	}
	return false
}

// sources are the fields of requests that a response's elements answer, where
// their names differ.
var sources = map[string][]string{
	"Topics":            {"TopicNames"},       // DeleteTopics up to v5
	"Groups":            {"GroupIDs"},         // ShareGroupDescribe
	"Coordinators":      {"CoordinatorKeys"},  // FindCoordinator
	"TransactionStates": {"TransactionalIDs"}, // DescribeTransactions
	"Results":           {"Creations", "Filters", "Users", "FeatureUpdates", "Upsertions"},
}

// identity are the fields that an element of an answer takes over.
var identity = []string{
	"Topic", "TopicID", "Partition", "Group", "GroupID", "TransactionalID", "ProducerID",
	"MemberID", "InstanceID", "ResourceType", "ResourceName", "Name", "User", "Feature",
}

// fillElements makes the elements of r that answer those of q, and returns how
// many places for a code they had.
func fillElements(q, r reflect.Value, code int16) int {
	set := 0
	for _, f := range reflect.VisibleFields(r.Type()) {
		if !f.IsExported() || f.Type.Kind() != reflect.Slice || f.Type.Elem().Kind() != reflect.Struct {
			continue
		}
		from := source(q, f.Name)
		into, err := r.FieldByIndexErr(f.Index)
		if err != nil || !from.IsValid() {
			continue
		}
		for i := range from.Len() {
			el := reflect.New(f.Type.Elem())
			if d, ok := reflect.TypeAssert[interface{ Default() }](el); ok {
				d.Default()
			}
			asked := reflect.Indirect(from.Index(i))
			if asked.Kind() == reflect.Struct {
				copyIdentity(asked, el.Elem())
				set += fillElements(asked, el.Elem(), code)
			} else {
				setFirst(el.Elem(), asked)
			}
			if setInt16(el.Elem(), "ErrorCode", code) {
				set++
			}
			into.Set(reflect.Append(into, el.Elem()))
		}
	}
	return set
}

// source returns the slice of q that the response field answers.
func source(q reflect.Value, name string) reflect.Value {
	for _, name := range append([]string{name}, sources[name]...) {
		if v := field(q, name); v.IsValid() && v.Kind() == reflect.Slice && v.Len() > 0 {
			return v
		}
	}
	return reflect.Value{}
}

func copyIdentity(from, to reflect.Value) {
	for _, name := range identity {
		src, dst := field(from, name), field(to, name)
		if src.IsValid() && dst.IsValid() && src.Type() == dst.Type() {
			dst.Set(src)
		}
	}
}

// setFirst puts an id that a request lists bare into the first field of its
// type that is not a code.
func setFirst(to, id reflect.Value) {
	for i := range to.NumField() {
		f := to.Type().Field(i)
		if f.IsExported() && f.Type == id.Type() && f.Name != "ErrorCode" {
			to.Field(i).Set(id)
			return
		}
	}
}

// overwriteErrors sets every ErrorCode that a decoded answer has.
func overwriteErrors(resp kmsg.Response, code int16) {
	eachError(structOf(resp), func(f reflect.Value) { f.SetInt(int64(code)) })
}

// carriesError tells whether an answer still has the code once it is encoded in
// its version.
func carriesError(resp kmsg.Response, encoded []byte, code int16) bool {
	again := resp.RequestKind().ResponseKind()
	again.SetVersion(resp.GetVersion())
	if again.ReadFrom(encoded) != nil {
		return false
	}
	found := false
	eachError(structOf(again), func(f reflect.Value) { found = found || f.Int() == int64(code) })
	return found
}

// eachError calls fn with every ErrorCode at and below r.
func eachError(r reflect.Value, fn func(reflect.Value)) {
	if !r.IsValid() {
		return
	}
	if f := field(r, "ErrorCode"); f.IsValid() && f.Kind() == reflect.Int16 && f.CanSet() {
		fn(f)
	}
	for _, f := range reflect.VisibleFields(r.Type()) {
		v, err := r.FieldByIndexErr(f.Index)
		if err != nil || !f.IsExported() || v.Kind() != reflect.Slice || f.Type.Elem().Kind() != reflect.Struct {
			continue
		}
		for i := range v.Len() {
			eachError(v.Index(i), fn)
		}
	}
}

func structOf(v any) reflect.Value {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() || p.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return p.Elem()
}

// field returns a field of v, also an embedded one; invalid if there is none.
func field(v reflect.Value, name string) reflect.Value {
	f, ok := v.Type().FieldByName(name)
	if !ok || !f.IsExported() {
		return reflect.Value{}
	}
	found, err := v.FieldByIndexErr(f.Index)
	if err != nil {
		return reflect.Value{}
	}
	return found
}

func setInt16(v reflect.Value, name string, to int16) bool {
	f := field(v, name)
	if !f.IsValid() || f.Kind() != reflect.Int16 || !f.CanSet() {
		return false
	}
	f.SetInt(int64(to))
	return true
}
