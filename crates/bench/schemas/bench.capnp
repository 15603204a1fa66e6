@0xb8c1d3f0a2964e57;
# The benchmark's interfaces for Cap'n Proto.

struct PaperArgs { a @0 :Int32; b @1 :Int32; c @2 :Data; }

struct StatArgs { path @0 :Text; }
struct StatReply {
  device @0 :UInt64; inode @1 :UInt64; size @2 :UInt64; blocks @3 :UInt64;
  accessedNs @4 :Int64; modifiedNs @5 :Int64; changedNs @6 :Int64;
  mode @7 :UInt32; links @8 :UInt32; uid @9 :UInt32; gid @10 :UInt32;
}

struct Entry { inode @0 :UInt64; kind @1 :UInt32; name @2 :Text; }
struct ListArgs { directory @0 :UInt64; }
struct ListReply { entries @0 :List(Entry); }

struct PutArgs { key @0 :Data; value @1 :Data; flags @2 :UInt32; }
struct PutReply { revision @0 :UInt64; }

struct RecordArgs {
  sensor @0 :UInt32; flags @1 :UInt32; timeNs @2 :UInt64;
  counters @3 :List(UInt64); gauges @4 :List(Float64);
}

struct Node { value @0 :Int32; left @1 :Node; right @2 :Node; }
