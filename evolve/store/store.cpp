#include "evolve/store/store.hpp"

#include <fmt/format.h>

#include <utility>

#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kVersion = "1";
constexpr const char* kTables = R"(
  CREATE TABLE IF NOT EXISTS settings(name TEXT PRIMARY KEY, value TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS programs(hash TEXT PRIMARY KEY, source TEXT NOT NULL, parameters TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS attempts(
    id INTEGER PRIMARY KEY, operation TEXT NOT NULL, parents TEXT NOT NULL, proposer TEXT NOT NULL,
    name TEXT NOT NULL, thought TEXT NOT NULL, predicted REAL NOT NULL,
    program TEXT REFERENCES programs(hash), done INTEGER NOT NULL DEFAULT 0,
    outcome TEXT NOT NULL DEFAULT '', stage TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
    score REAL NOT NULL DEFAULT 0, noise REAL NOT NULL DEFAULT 0, seconds REAL NOT NULL DEFAULT 0,
    evidence TEXT NOT NULL DEFAULT '{}');
  CREATE TABLE IF NOT EXISTS events(
    id INTEGER PRIMARY KEY, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, kind TEXT NOT NULL, text TEXT NOT NULL);
)";

std::string dumped(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Result<Store> Store::open(const std::string& path) {
  Result<Database> database = Database::open(path);
  if (!database.ok()) return database.status();
  FLASHCORE_RETURN_IF_ERROR(database->run(kTables));
  Store store(std::move(*database));
  const Result<std::string> version = store.setting("version");
  if (!version.ok()) return version.status();
  if (version->empty()) {
    FLASHCORE_RETURN_IF_ERROR(store.set("version", kVersion));
  } else if (*version != kVersion) {
    return invalid("{}: has version {}, wanted {}", path, *version, kVersion);
  }
  return store;
}

Result<std::string> Store::setting(const std::string& name) const {
  Query query = database_.query("SELECT value FROM settings WHERE name = ?");
  query.bind(name);
  std::string value;
  if (query.next()) value = query.text(0);
  if (Status status = query.finish(); !status.ok()) return status;
  return value;
}

Status Store::set(const std::string& name, const std::string& value) {
  Query query = database_.query("INSERT OR REPLACE INTO settings VALUES(?, ?)");
  return query.bind(name).bind(value).finish();
}

Result<int64_t> Store::begin(const Origin& origin, const std::optional<Program>& program) {
  Database::Transaction transaction(database_);
  Query count = database_.query("SELECT COALESCE(MAX(id), 0) + 1 FROM attempts");
  const int64_t id = count.next() ? count.integer(0) : 0;
  FLASHCORE_RETURN_IF_ERROR(count.finish());
  std::string hash;
  if (program) {
    hash = hash_of(*program);
    Query insert = database_.query("INSERT OR IGNORE INTO programs VALUES(?, ?, ?)");
    insert.bind(hash).bind(program->source).bind(dumped(values_json(program->values)));
    FLASHCORE_RETURN_IF_ERROR(insert.finish());
  }
  Query insert = database_.query(
      "INSERT INTO attempts(id, operation, parents, proposer, name, thought, predicted, program) "
      "VALUES(?, ?, ?, ?, ?, ?, ?, NULLIF(?, ''))");
  insert.bind(id).bind(origin.operation).bind(dumped(Json(origin.parents))).bind(origin.proposer);
  insert.bind(origin.name).bind(origin.thought).bind(origin.predicted).bind(hash);
  FLASHCORE_RETURN_IF_ERROR(insert.finish());
  FLASHCORE_RETURN_IF_ERROR(transaction.commit());
  return id;
}

Status Store::end(int64_t id, const Ending& ending) {
  Query query = database_.query(
      "UPDATE attempts SET done = 1, outcome = ?, stage = ?, reason = ?, score = ?, noise = ?, "
      "seconds = ?, evidence = ? WHERE id = ?");
  query.bind(ending.outcome).bind(ending.stage).bind(ending.reason).bind(ending.score);
  query.bind(ending.noise).bind(ending.seconds).bind(dumped(ending.evidence)).bind(id);
  return query.finish();
}

Status Store::note(const std::string& kind, const std::string& text) {
  Query query = database_.query("INSERT INTO events(kind, text) VALUES(?, ?)");
  return query.bind(kind).bind(text).finish();
}

Result<std::vector<Attempt>> Store::attempts() const {
  Query query = database_.query(
      "SELECT id, operation, parents, proposer, name, thought, predicted, program, done, outcome, "
      "stage, reason, score, noise, seconds, evidence, source, parameters FROM attempts "
      "LEFT JOIN programs ON program = hash ORDER BY id");
  std::vector<Attempt> found;
  while (query.next()) {
    Attempt& one = found.emplace_back();
    one.id = query.integer(0);
    one.origin = {query.text(1), Json::parse(query.text(2)).get<std::vector<int64_t>>(),
                  query.text(3), query.text(4),
                  query.text(5), query.number(6)};
    one.hash = query.text(7);
    one.done = query.integer(8) != 0;
    one.outcome = query.text(9);
    one.stage = query.text(10);
    one.reason = query.text(11);
    one.score = query.number(12);
    one.noise = query.number(13);
    one.seconds = query.number(14);
    one.evidence = Json::parse(query.text(15));
    if (!one.hash.empty()) {
      one.program = {query.text(16), values_from(Json::parse(query.text(17)))};
    }
  }
  if (Status status = query.finish(); !status.ok()) return status;
  return found;
}

}  // namespace flashcore::evolve
