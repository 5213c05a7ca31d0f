#include "bench/evidence/compact.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/text/terminal.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongText = 12, kOften = 3;  // bytes and uses of a string that `texts` takes
constexpr size_t kLargest = size_t{1} << 28;  // bytes of a whole document, about
constexpr size_t kMostSteps = 8;              // of a path

std::string dump(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

bool begins_with(const Json& value, char mark) {
  return value.is_string() && value.get_ref<const std::string&>().starts_with(mark);
}

bool has_form(const Json& value) {
  return value.is_object() && !value.empty() &&
         std::none_of(value.items().begin(), value.items().end(),
                      [](const auto& item) { return item.key().find('/') != std::string::npos; });
}

// The members of an object by path; objects in it are opened where no name has a slash.
void flatten(const Json& object, const std::string& before, Json& flat) {
  for (const auto& [name, member] : object.items()) {
    if (has_form(member)) {
      flatten(member, before + name + "/", flat);
    } else {
      flat[before + name] = member;
    }
  }
}

class Shortener {
 public:
  Json document(const Json& evidence) {
    count(evidence);
    Json result = evidence;
    for (Json& member : result) member = shortened(member);
    if (!form_list_.empty()) result["forms"] = std::move(form_list_);
    if (!text_list_.empty()) result["texts"] = std::move(text_list_);
    return result;
  }

 private:
  struct Form {
    size_t objects = 0;
    Json same;  // the leaves that all objects have
    std::string number;
  };
  struct Text {
    size_t uses = 0;
    std::string number;
  };

  Form& form_of(const Json& flat) {
    std::string paths;
    for (const auto& item : flat.items()) paths += item.key() + "\n";
    return forms_[paths];
  }

  void count(const Json& value) {
    if (value.is_string()) ++texts_[value].uses;
    if (!value.is_structured()) return;
    if (has_form(value)) {
      Json flat;
      flatten(value, "", flat);
      Form& form = form_of(flat);
      if (form.objects++ == 0) form.same = flat;
      for (const auto& [path, leaf] : flat.items()) {
        // As text: 1 and 1.0 are not the same.
        const auto same = form.same.find(path);
        if (same != form.same.end() && (leaf.is_structured() || dump(*same) != dump(leaf))) {
          form.same.erase(same);
        }
      }
    }
    for (const Json& member : value) count(member);
  }

  Json shortened(const Json& value) {
    if (value.is_string()) return shortened_text(value);
    Json flat;
    if (has_form(value)) flatten(value, "", flat);
    Form* const form = flat.empty() ? nullptr : &form_of(flat);
    if (form == nullptr || form->objects < 2) {
      Json result = value;
      if (value.is_structured()) {
        for (Json& member : result) member = shortened(member);
      }
      return result;
    }
    if (form->number.empty()) list(*form, flat);
    Json row = Json::array({form->number});
    for (const auto& [path, leaf] : flat.items()) {
      if (!form->same.contains(path)) row.push_back(shortened(leaf));
    }
    return row;
  }

  Json shortened_text(const Json& value) {
    Text& text = texts_[value];
    const bool is_long = value.get_ref<const std::string&>().size() > kLongText;
    if (!(is_long && text.uses >= kOften) && !begins_with(value, '@') && !begins_with(value, '#')) {
      return value;
    }
    if (text.number.empty()) {
      text.number = fmt::format("@{}", text_list_.size());
      text_list_[text.number] = value;
    }
    return text.number;
  }

  void list(Form& form, const Json& flat) {
    form.number = fmt::format("#{}", form_list_.size());
    Json entries = Json::array({form.number});
    for (const auto& [path, leaf] : flat.items()) {
      entries.push_back(form.same.contains(path) ? Json::array({path, leaf}) : Json(path));
    }
    form_list_.push_back(std::move(entries));
  }

  std::map<std::string, Form> forms_;  // by paths
  std::map<std::string, Text> texts_;
  Json form_list_ = Json::array(), text_list_ = Json::object();
};

class Opener {
 public:
  Result<Json> document(Json compact) {
    if (!compact.is_object()) return compact;
    for (const Json& form : taken(compact, "forms")) {
      if (!form.is_array() || form.empty() || !form[0].is_string()) return wrong("form", form);
      forms_[form[0]] = form;
    }
    texts_ = taken(compact, "texts");
    Json result = opened(std::move(compact));
    if (!error_.ok()) return error_;
    return result;
  }

 private:
  static Json taken(Json& document, const char* name) {
    Json value = document.value(name, Json());
    document.erase(name);
    return value;
  }

  static Status wrong(const char* what, const Json& value) {
    return invalid("'{}' is no {} of this file, wanted the compact form of evidence",
                   printable(dump(value).substr(0, 80)), what);
  }

  void fail(Status status) {
    if (error_.ok()) error_ = std::move(status);
  }

  // A copy of a part of `forms` or `texts`, whose copies a small file could make endless.
  Json copy(const Json& part) {
    size_ += dump(part).size();
    if (size_ <= kLargest) return part;
    fail(invalid("forms and texts: make more than {} bytes, wanted fewer", kLargest));
    return {};
  }

  Json opened(Json value) {
    if (!error_.ok()) return {};
    if (begins_with(value, '@')) {
      const auto text = texts_.find(value.get<std::string>());
      if (text != texts_.end() && text->is_string()) return copy(*text);
      fail(wrong("text", value));
    } else if (value.is_array() && !value.empty() && begins_with(value[0], '#')) {
      Json object = Json::object();
      if (!open_row(value, object)) fail(wrong("row", value));
      return object;
    } else if (value.is_structured()) {
      for (Json& member : value) member = opened(std::move(member));
    }
    return value;
  }

  // Moves the values of a row to the object that it stands for; false if they do not fit its form.
  bool open_row(Json& row, Json& object) {
    const auto form = forms_.find(row[0]);
    if (form == forms_.end()) return false;
    size_t next = 1;
    for (size_t i = 1; i < form->second.size(); ++i) {
      const Json entry = copy(form->second[i]);
      const bool is_fixed = entry.is_array() && entry.size() == 2;
      const Json& path = is_fixed ? entry[0] : entry;
      if (!path.is_string() || (!is_fixed && next == row.size())) return false;
      Json* const place = place_of(path, object);
      if (place == nullptr) return false;
      *place = is_fixed ? entry[1] : opened(std::move(row[next++]));
    }
    return next == row.size();
  }

  static Json* place_of(const std::string& path, Json& object) {
    Json* place = &object;
    std::istringstream steps(path);
    size_t count = 0;
    for (std::string step; std::getline(steps, step, '/');) {
      if (!(place->is_object() || place->is_null()) || ++count > kMostSteps) return nullptr;
      place = &(*place)[step];
    }
    return place;
  }

  std::map<std::string, Json> forms_;
  Json texts_;
  size_t size_ = 0;
  Status error_;
};

}  // namespace

Json compact(const Json& evidence) { return Shortener().document(evidence); }

Result<Json> whole(Json document) { return Opener().document(std::move(document)); }

}  // namespace flashcore::bench
