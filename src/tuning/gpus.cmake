# The constants of measured GPUs, one file each below gpus/, as a table
# that gpu.cpp includes.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB gpus CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/gpus/*/constants.json)
set(tables ${CMAKE_CURRENT_BINARY_DIR}/generated/tuning/gpu_tables.inc)
add_custom_command(OUTPUT ${tables}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/gpu_tables.py --output ${tables} ${gpus}
  DEPENDS ${gpus} ${PROJECT_SOURCE_DIR}/tools/gpu_tables.py
  COMMENT "Tables of the measured GPUs' constants"
  VERBATIM)
set_source_files_properties(tuning/gpu.cpp PROPERTIES OBJECT_DEPENDS ${tables})
target_sources(flashcore_objects PRIVATE tuning/gpu.cpp)

# Tables of `flashcore tune` measurements that ship with the library, unchanged.
set(shipped "")
file(GLOB measured CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/gpus/*/tuned.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${measured})
foreach(table ${measured})
  file(READ ${table} text)
  string(APPEND shipped "R\"json(${text})json\",\n")
endforeach()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/tuning/shipped_tables.inc
     CONTENT "${shipped}")
