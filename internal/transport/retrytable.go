package transport

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Row is one line of the retry table.
type Row struct {
	Key    int16  // of the request
	Code   int16  // of the answer; 0 if Rest
	Rest   bool   // the row is for every code that the key has no row for
	Class  Class  // what the answer means
	Open   bool   // the request may have been applied all the same
	Reason string // why, in a few words
}

// Classify returns the class of an answer.
func Classify(key, code int16) Class { return rowFor(key, code).Class }

// Rows returns the retry table, ordered by key and code, the rest of each key
// last.
func Rows() []Row {
	var rows []Row
	for _, t := range tables {
		rows = append(rows, t.rows...)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		if a.Key != b.Key {
			return int(a.Key) - int(b.Key)
		}
		if a.Rest != b.Rest {
			if a.Rest {
				return 1
			}
			return -1
		}
		return int(a.Code) - int(b.Code)
	})
	return rows
}

// hasRows reports whether the table knows the key.
func hasRows(key int16) bool {
	_, ok := index[key]
	return ok
}

type keyRows struct {
	byCode map[int16]Row
	rest   Row
}

var index = func() map[int16]keyRows {
	idx := make(map[int16]keyRows, len(tables))
	for _, t := range tables {
		kr := keyRows{byCode: make(map[int16]Row, len(t.rows))}
		for _, r := range t.rows {
			if r.Rest {
				kr.rest = r
			} else {
				kr.byCode[r.Code] = r
			}
		}
		idx[t.key] = kr
	}
	return idx
}()

// rowFor returns the row that decides about an answer.
func rowFor(key, code int16) Row {
	kr, known := index[key]
	switch {
	case !known:
		return strangerRow(key, code)
	case code == 0:
		return Row{Key: key, Class: ClassNone, Reason: "success"}
	}
	if r, ok := kr.byCode[code]; ok {
		return r
	}
	r := kr.rest
	r.Code = code
	return r
}

// strangerRow judges a request that the table does not know, by what Kafka
// says of the code in general.
func strangerRow(key, code int16) Row {
	r := Row{Key: key, Code: code, Class: ClassUnknown, Reason: "not in the table"}
	switch {
	case code == 0:
		r.Class, r.Reason = ClassNone, "success"
	case moved(code):
		r.Class, r.Reason = ClassRefresh, "the coordinator moved"
	case code == kerr.UnsupportedVersion.Code:
		r.Class, r.Reason = ClassUnsupported, "the broker does not know the version"
	case kerr.IsRetriable(kerr.ErrorForCode(code)):
		r.Class, r.Reason = ClassRetriable, "Kafka calls the code retriable"
	}
	return r
}

// table has the rows of one request.
type table struct {
	key  int16
	rows []Row
}

// rows builds a table from groups of rows.
func rows(key int16, groups ...[]Row) table {
	t := table{key: key}
	for _, g := range groups {
		for _, r := range g {
			r.Key = key
			t.rows = append(t.rows, r)
		}
	}
	return t
}

// on makes rows for codes that mean the same.
func on(class Class, reason string, codes ...*kerr.Error) []Row {
	g := make([]Row, len(codes))
	for i, c := range codes {
		g[i] = Row{Code: c.Code, Class: class, Reason: reason}
	}
	return g
}

// open makes rows for codes after which the request may have been applied.
func open(class Class, reason string, codes ...*kerr.Error) []Row {
	g := on(class, reason, codes...)
	for i := range g {
		g[i].Open = true
	}
	return g
}

// rest makes the row for all other codes.
func rest(class Class, reason string) []Row {
	return []Row{{Rest: true, Class: class, Reason: reason}}
}

// restOpen is rest for requests that may have been applied.
func restOpen(class Class, reason string) []Row {
	return []Row{{Rest: true, Class: class, Open: true, Reason: reason}}
}
